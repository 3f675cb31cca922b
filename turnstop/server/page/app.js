// The page of `turnstop serve`. What agents and people say is put in as text, never as markup.
"use strict";

const KEPT = 300; // messages and turns that are shown of a room
const LONGEST = 200000; // characters of a turn that are shown
const STEPS = ["asked", "sent", "acked", "ended", "settled"];
const NAMES = { asked: "asked", sent: "sent", acked: "acknowledged", ended: "ended", settled: "settled" };
const SVG = "http://www.w3.org/2000/svg";

const $ = (id) => document.getElementById(id);
const rooms = new Map();
let current = null;
let token = "";
let lastId = "";
let streaming = null;

function make(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

// Talking with the server.

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${token}` };
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, found.error || response.statusText);
  return found;
}

async function attempt(work) {
  try {
    const found = await work();
    $("trouble").hidden = true;
    return found ?? true;
  } catch (error) {
    if (error.status === 401) askToken("The server does not know this token.");
    $("trouble").textContent = error.message;
    $("trouble").hidden = false;
    return false;
  }
}

const pathOf = (room, what) => `/rooms/${encodeURIComponent(room)}/${what}`;

function press(kind, reason) {
  if (current === null) return false;
  return attempt(() => call("POST", pathOf(current.name, kind), { reason }));
}

async function follow() {
  streaming?.abort();
  streaming = new AbortController();
  const { signal } = streaming;
  for (let tries = 0; !signal.aborted; tries++) {
    try {
      const headers = { Authorization: `Bearer ${token}` };
      if (lastId) headers["Last-Event-ID"] = lastId;
      const response = await fetch("/events", { headers, signal });
      if (response.status === 401) return askToken("The server does not know this token.");
      if (!response.ok) throw new Error(response.statusText);
      tries = 0;
      $("connection").textContent = "connected";
      setTimeout(() => attempt(refresh), 200);
      await read(response.body.getReader());
      $("connection").textContent = "the server has ended";
    } catch (error) {
      if (signal.aborted) return;
      $("connection").textContent = "connecting again";
    }
    await new Promise((done) => setTimeout(done, Math.min(10000, 300 * 2 ** tries)));
  }
}

async function read(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = blocks.pop();
    blocks.forEach(hear);
  }
}

function hear(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  if (fields.data === undefined) return;
  const epoch = (id) => id.split("-")[0];
  const isAnother = lastId && epoch(lastId) !== epoch(fields.id);
  lastId = fields.id;
  if (isAnother) forget(); // another server, which gives the same names to other things
  if (fields.event === "gap") {
    attempt(refresh);
    return;
  }
  const data = JSON.parse(fields.data);
  const room = roomOf(data.room);
  const log = $("log");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  HEARD[fields.event]?.(room, data);
  if (room === current) {
    if (atEnd) log.scrollTop = log.scrollHeight;
    showState();
  }
  showRoom(room);
}

async function refresh() {
  const health = await call("GET", "/health");
  $("agent").textContent = health.agent;
  for (const found of await call("GET", "/rooms")) {
    const room = roomOf(found.room);
    room.paused = found.paused;
    room.turnId = found.turn_id;
    room.asks = new Map(found.asks.map((ask) => [ask.id, ask]));
    showRoom(room);
  }
  showState();
  showAsks();
}

// What is known of the rooms.

function roomOf(name) {
  let room = rooms.get(name);
  if (room === undefined) {
    room = { name, paused: false, turnId: null, asks: new Map(), messages: new Map(), turns: new Map() };
    room.log = make("div");
    room.button = make("button");
    room.button.type = "button";
    room.button.append(make("span", "", name), make("small"));
    room.button.addEventListener("click", () => choose(room));
    const item = make("li");
    item.append(room.button);
    $("rooms").append(item);
    rooms.set(name, room);
    if (current === null) choose(room);
  }
  return room;
}

function forget() {
  rooms.clear();
  current = null;
  $("rooms").replaceChildren();
  $("log").replaceChildren();
  $("title").textContent = "No room";
}

function choose(room) {
  current = room;
  $("title").textContent = room.name;
  $("log").replaceChildren(room.log);
  $("log").scrollTop = $("log").scrollHeight;
  for (const other of rooms.values()) other.button.removeAttribute("aria-current");
  room.button.setAttribute("aria-current", "true");
  showState();
  showAsks();
}

function stateOf(room) {
  if (room.turnId) return room.asks.size ? "waits for you" : room.stopping ? "stopping" : "working";
  if (room.paused) return "paused: PLAY goes on";
  return "idle";
}

function showRoom(room) {
  room.button.lastChild.textContent = stateOf(room);
}

function showState() {
  const there = current !== null;
  $("state").textContent = there ? stateOf(current) : "";
  $("state").className = there && current.turnId ? "live" : "";
  $("stop").disabled = !there || (current.paused && !current.turnId);
  $("interrupt").disabled = !there || !current.turnId;
  $("play").disabled = !there || !current.paused;
}

function put(room, element) {
  room.log.append(element);
  while (room.log.childElementCount > KEPT) room.log.firstElementChild.remove();
}

function turnOf(room, id) {
  let turn = room.turns.get(id);
  if (turn === undefined) {
    turn = { id, box: make("article", "turn"), last: null, end: null, tools: new Map(), shown: 0 };
    turn.box.setAttribute("aria-label", `Turn ${id}`);
    room.turns.set(id, turn);
    while (room.turns.size > KEPT) room.turns.delete(room.turns.keys().next().value);
    put(room, turn.box);
  }
  return turn;
}

// What is said of a turn whose settlement came first, after a gap, still stands above it.
const add = (turn, element) => turn.box.insertBefore(element, turn.end);

function say(room, data, kind) {
  const turn = turnOf(room, data.turn_id);
  if (turn.last?.className !== kind) {
    turn.last = make("div", kind, "");
    turn.last.append(document.createTextNode(""));
    add(turn, turn.last);
  }
  const piece = data.delta.slice(0, Math.max(0, LONGEST - turn.shown));
  turn.shown += piece.length;
  turn.last.firstChild.appendData(piece);
}

function note(room, data, text) {
  const turn = turnOf(room, data.turn_id);
  turn.last = make("p", "note", text);
  add(turn, turn.last);
}

const HEARD = {
  message(room, data) {
    let shown = room.messages.get(data.id);
    if (shown === undefined) {
      shown = make("article", "message");
      shown.setAttribute("aria-label", "Message");
      shown.append(make("p", "said", data.content ?? data.id), make("p", "note"));
      room.messages.set(data.id, shown);
      while (room.messages.size > KEPT) room.messages.delete(room.messages.keys().next().value);
      put(room, shown);
    }
    shown.lastChild.textContent = data.reason ? `${data.state}: ${data.reason}` : data.state;
  },
  turn(room, data) {
    room.turnId = data.turn_id;
    room.stopping = false;
    turnOf(room, data.turn_id);
  },
  text: (room, data) => say(room, data, "said"),
  thought: (room, data) => say(room, data, "thought"),
  tool_call(room, data) {
    const turn = turnOf(room, data.turn_id);
    let line = turn.tools.get(data.id);
    if (line === undefined) {
      line = turn.last = make("div", "tool");
      turn.tools.set(data.id, line);
      add(turn, line);
    }
    line.textContent = `${data.name}: ${data.state} ${data.detail}`;
  },
  ask(room, data) {
    room.asks.set(data.id, data);
    note(room, data, `asks: ${data.text}`);
    if (room === current) showAsks();
  },
  answered(room, data) {
    room.asks.delete(data.ask);
    if (room === current) showAsks();
  },
  usage(room, data) {
    note(room, data, `tokens: ${data.input_tokens ?? "?"} in, ${data.output_tokens ?? "?"} out`);
  },
  stopping(room, data) {
    room.stopping = true;
    room.asks.clear();
    note(room, data, `${data.control.toUpperCase()} ${data.reason}`);
    if (room === current) showAsks();
  },
  settlement(room, data) {
    if (room.turnId === data.turn_id) room.turnId = null;
    room.asks.clear();
    const turn = turnOf(room, data.turn_id);
    turn.end ??= turn.box.appendChild(ended(data));
    if (room === current) showAsks();
  },
  paused: (room) => void (room.paused = true),
  resumed: (room) => void (room.paused = false),
};

// How a turn ended.

function ended(settlement) {
  const box = make("div", "end");
  const how = make("span", `ending ${settlement.ending}`, settlement.ending.toUpperCase());
  box.append(how);
  const proof = settlement.proof ? ` proof: ${settlement.proof}` : "";
  box.append(make("span", "note", ` ${settlement.turn_id}${proof}`));
  for (const text of settlement.errors) box.append(make("p", "note failed", text));
  for (const text of settlement.survivors) box.append(make("p", "note failed", `alive: ${text}`));
  if (settlement.asked_at !== null) box.append(timeline(settlement));
  return box;
}

function milliseconds(value) {
  return value < 10 ? `${value.toFixed(1)} ms` : value < 10000 ? `${value.toFixed(0)} ms` : `${(value / 1000).toFixed(1)} s`;
}

function draw(parent, tag, name, attributes) {
  const made = document.createElementNS(SVG, tag);
  made.setAttribute("class", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.setAttribute("vector-effect", "non-scaling-stroke");
  parent.append(made);
  return made;
}

// Above to scale, below evenly, so that steps which are close together can still be read.
function timeline(settlement) {
  const at = (step) => settlement[`${step}_at`];
  const after = (step) => Math.max(0, 1000 * (at(step) - at("asked")));
  const whole = Math.max(after("settled"), 0.001);
  const figure = make("figure", "timeline");
  const svg = draw(figure, "svg", "", { viewBox: "0 0 500 40", preserveAspectRatio: "none", role: "img" });
  const list = make("ol");
  draw(svg, "line", "axis", { x1: 50, x2: 450, y1: 8, y2: 8 });
  const told = [];
  const when = (step) => at(step) ?? Infinity;
  [...STEPS].sort((one, other) => (when(one) === when(other) ? 0 : when(one) - when(other))).forEach((step, index) => {
    const item = make("li");
    const happened = at(step) !== null;
    const text = happened ? (step === "asked" ? "0" : `+${milliseconds(after(step))}`) : "did not happen";
    item.append(make("strong", "", NAMES[step]), make("span", "", happened ? text : "\u2013"));
    list.append(item);
    told.push(`${NAMES[step]} ${text}`);
    if (!happened) return;
    const x = 50 + (400 * after(step)) / whole;
    const below = 50 + 100 * index;
    draw(svg, "polyline", `lead ${step}`, { points: `${x},8 ${below},32 ${below},40` });
    draw(svg, "line", `tick ${step}`, { x1: x, x2: x, y1: 1, y2: 15 });
  });
  svg.setAttribute("aria-label", `Timeline of the stop: ${told.join(", ")}`);
  figure.append(svg, list);
  return figure;
}

// Questions.

function showAsks() {
  const asks = current === null ? [] : [...current.asks.values()];
  const had = $("asks").contains(document.activeElement);
  const shown = new Set([...$("asks").children].map((box) => box.dataset.ask));
  if (asks.length === shown.size && asks.every((ask) => shown.has(`${current.name}\n${ask.id}`))) return;
  $("asks").replaceChildren(...asks.map((ask) => question(current, ask)));
  if (had) ($("asks").querySelector("button, input") ?? $("text")).focus();
}

function question(room, ask) {
  const box = make("form", "ask");
  const row = make("div", "row");
  const reply = (text) =>
    attempt(() => call("POST", pathOf(room.name, "answers"), { ask: ask.id, reply: text })).then((done) => {
      if (!done) return;
      room.asks.delete(ask.id);
      showAsks();
    });
  box.dataset.ask = `${room.name}\n${ask.id}`;
  box.append(make("p", "", ask.text), row);
  for (const choice of ask.choices) {
    const button = make("button", "", choice);
    button.type = "button";
    button.addEventListener("click", () => reply(choice));
    row.append(button);
  }
  if (ask.choices.length === 0) {
    const input = make("input");
    input.setAttribute("aria-label", ask.text);
    input.required = true;
    const button = make("button", "", "Answer");
    row.append(input, button);
    box.addEventListener("submit", () => reply(input.value));
  }
  box.addEventListener("submit", (event) => event.preventDefault());
  return box;
}

// What a person does.

function askToken(why) {
  if (why) $("token-why").textContent = why;
  if (!$("ask-token").open) $("ask-token").showModal();
}

function begin(given) {
  token = given;
  sessionStorage.setItem("turnstop token", given);
  follow();
}

$("token-form").addEventListener("submit", () => begin($("token").value.trim()));
$("new-room").addEventListener("submit", (event) => {
  event.preventDefault();
  choose(roomOf($("room-name").value));
  $("room-name").value = "";
  $("text").focus();
});
$("compose").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (current === null) choose(roomOf("lobby"));
  const content = $("text").value;
  if (await attempt(() => call("POST", pathOf(current.name, "messages"), { content }))) $("text").value = "";
});
$("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("compose").requestSubmit();
});
$("stop").addEventListener("click", () => press("stop", "the button"));
$("interrupt").addEventListener("click", () => press("interrupt", "the button"));
$("play").addEventListener("click", () => press("play", "the button"));
$("stop-all").addEventListener("click", () => attempt(() => call("POST", "/stop", { reason: "the button" })));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("ask-token").open && current?.turnId) press("stop", "the Esc key");
});
$("ask-token").addEventListener("cancel", (event) => event.preventDefault());

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) history.replaceState(null, "", location.pathname);
const kept = given || sessionStorage.getItem("turnstop token");
showState();
if (kept) begin(kept);
else askToken("");
