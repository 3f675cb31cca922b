// What is known of the rooms, and how it is shown. What is kept is bounded, however long it is open.

import { $, make } from "./dom.js";
import { ended } from "./ending.js";
import { showAsks } from "./asks.js";

const MOST_ROOMS = 1000;
const MOST_ENTRIES = 300; // messages and turns of a room
const MOST_PARTS = 500; // of a turn
const LONGEST = 200000; // characters of a turn, the latest ones
const MOST = 10000000; // characters of all rooms
const LONGEST_NOTE = 2000;
const COST = 200; // of an element, in characters

const rooms = new Map(); // the one that was heard of last is the last
let kept = 0;
let gaps = 0;

export const view = { current: null, connected: false };

export const all = () => [...rooms.values()];

export function roomOf(name) {
  let room = rooms.get(name);
  if (room === undefined) {
    room = { name, draft: "", unsent: null, log: make("div"), button: make("button"), item: make("li") };
    clear(room);
    room.button.type = "button";
    room.button.append(make("span", "", name), make("small"));
    room.button.addEventListener("click", () => choose(room));
    room.item.append(room.button);
    $("rooms").append(room.item);
    rooms.set(name, room);
    if (rooms.size > MOST_ROOMS) dropOne(); // itself at worst
    // What somebody is typing is for no room that happens to come by.
    if (view.current === null && !$("text").value) choose(room);
  }
  return room;
}

function clear(room) {
  for (const entry of room.entries?.values() ?? []) kept -= entry.size;
  room.log.replaceChildren();
  const nothing = { known: false, paused: false, turnId: null, stopping: false, changes: 0 };
  Object.assign(room, nothing, { asks: new Map(), waiting: new Set(), entries: new Map() });
}

const isWanted = (room) => room === view.current || written(room) !== "";

// Unless somebody looks at it, or has something to send to it.
export function drop(room) {
  if (isWanted(room)) return;
  clear(room);
  room.item.remove();
  rooms.delete(room.name);
}

function dropOne() {
  const idle = all().find((room) => !isWanted(room) && !isBusy(room));
  if (idle) drop(idle);
}

// Another server gives the same names to other things; what somebody types goes where it went.
export function beginAnew() {
  for (const room of all()) {
    drop(room);
    clear(room);
    showRoom(room);
  }
  showAsks();
}

export function choose(room) {
  const typed = $("text").value;
  if (view.current !== null) view.current.draft = typed;
  else if (!room.draft) room.draft = typed;
  view.current = room;
  $("text").value = room.draft;
  $("title").textContent = room.name;
  $("log").replaceChildren(room.log);
  goToEnd();
  for (const other of rooms.values()) other.button.removeAttribute("aria-current");
  room.button.setAttribute("aria-current", "true");
  room.item.scrollIntoView({ block: "nearest", inline: "nearest" });
  showState();
  showAsks();
}

export function write(room, text) {
  room.draft = text;
  if (room === view.current) $("text").value = text;
}

export const written = (room) => (room === view.current ? $("text").value : room.draft);

function stateOf(room) {
  if (room.turnId) return room.asks.size ? "waits for you" : room.stopping ? "stopping" : "working";
  if (room.paused) return "paused";
  return room.waiting.size ? "waiting" : "idle";
}

// Where the list of rooms is out of sight, as on a phone or in another tab, their number is not.
export function showWaiting() {
  const count = all().filter((room) => room.asks.size > 0).length;
  $("asking").textContent = count === 0 ? "" : `${count} ${count === 1 ? "waits" : "wait"} for you`;
  document.title = count === 0 ? "turnstop" : `(${count}) turnstop`;
}

export function showRoom(room) {
  room.button.lastChild.textContent = stateOf(room);
  showWaiting();
  if (room === view.current) showState();
}

export function showState() {
  const room = view.current;
  const there = room !== null;
  const sure = view.connected; // otherwise it may be otherwise by now
  const state = there ? stateOf(room) : "";
  $("state").textContent = state === "paused" ? "paused: PLAY goes on" : state;
  $("state").className = there && room.turnId ? "live" : "";
  $("stop").disabled = !there || (sure && room.paused && !room.turnId);
  $("interrupt").disabled = !there || !room.turnId;
  $("play").disabled = !there || (sure && !room.paused);
}

export const isBusy = (room) => room.turnId !== null || (room.waiting.size > 0 && !room.paused);

// Whoever has scrolled up is left there.

let isAtEnd = true;
let isPlanned = false;

$("log").addEventListener("scroll", () => {
  const log = $("log");
  isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
});
new ResizeObserver(stayAtEnd).observe($("log"));

function stayAtEnd() {
  if (isAtEnd && !isPlanned) requestAnimationFrame(scrollDown);
  isPlanned ||= isAtEnd;
}

function scrollDown() {
  isPlanned = false;
  $("log").scrollTop = $("log").scrollHeight;
}

export function goToEnd() {
  isAtEnd = true;
  stayAtEnd();
}

// Messages and turns, in the order in which they came.

function entryOf(room, key, name, label) {
  let entry = room.entries.get(key);
  if (entry === undefined) {
    entry = { box: make("article", name), size: 0, last: null, end: null, tools: new Map() };
    entry.box.setAttribute("aria-label", label);
    room.entries.set(key, entry);
    room.log.append(entry.box);
    grow(room, entry, COST);
  }
  return entry;
}

function dropEntry(room, key, entry) {
  entry.box.remove();
  room.entries.delete(key);
  kept -= entry.size;
}

function grow(room, entry, by) {
  entry.size += by;
  kept += by;
  while (room.entries.size > MOST_ENTRIES) dropEntry(room, ...room.entries.entries().next().value);
  while (kept > MOST) {
    const oldest = all().find((one) => one.entries.size > (one === room ? 1 : 0));
    if (oldest === undefined) return;
    dropEntry(oldest, ...oldest.entries.entries().next().value);
  }
}

const turnOf = (room, id) => entryOf(room, `turn ${id}`, "turn", `Turn ${id}`);

// What is said of a turn whose settlement came first, after a gap, still stands above it.
function add(room, turn, element) {
  turn.last = element;
  turn.box.insertBefore(element, turn.end);
  growTurn(room, turn, COST + element.textContent.length);
}

function growTurn(room, turn, by) {
  grow(room, turn, by);
  while (turn.box.childElementCount > MOST_PARTS || turn.size > LONGEST) {
    const first = turn.box.firstElementChild;
    if (first === turn.last || first === turn.end) return;
    grow(room, turn, -COST - first.textContent.length);
    first.remove();
  }
}

const shorten = (text) => (text.length > LONGEST_NOTE ? `${text.slice(0, LONGEST_NOTE)} \u2026` : text);

function say(room, data, kind) {
  const turn = turnOf(room, data.turn_id);
  if (turn.last?.className !== kind) {
    const line = make("div", kind);
    line.append(document.createTextNode(""));
    add(room, turn, line);
  }
  const text = turn.last.firstChild;
  const before = text.length;
  text.appendData(data.delta);
  if (text.length > LONGEST) text.replaceData(0, text.length - LONGEST / 2, "\u2026 ");
  growTurn(room, turn, text.length - before);
}

function note(room, data, text) {
  add(room, turnOf(room, data.turn_id), make("p", "note", shorten(text)));
}

export function noteMessage(room, id, state, content, reason) {
  const entry = entryOf(room, `message ${id}`, "message", "Message");
  if (entry.end === null) {
    const said = make("p", "said", content ?? id);
    entry.end = make("p", "note");
    entry.box.append(said, entry.end);
    grow(room, entry, said.textContent.length);
  }
  entry.state = state;
  entry.end.textContent = shorten(reason ? `${state}: ${reason}` : state);
  if (state === "waiting" || state === "working") room.waiting.add(id);
  else room.waiting.delete(id);
}

export const stateOfMessage = (room, id) => room.entries.get(`message ${id}`)?.state;

export function dropMessage(room, id) {
  const entry = room.entries.get(`message ${id}`);
  if (entry !== undefined) dropEntry(room, `message ${id}`, entry);
}

export function noteGap(room) {
  const last = room.log.lastElementChild;
  if (last === null || last.className === "gap") return;
  const entry = entryOf(room, `gap ${++gaps}`, "gap", "Gap");
  entry.box.append(make("p", "note", "What was said here meanwhile was missed."));
}

// Turns that are over, without a word of how they ended.
export function hasOpenTurns(room) {
  const isOpen = ([key, entry]) => key.startsWith("turn ") && entry.end === null;
  return [...room.entries].some((one) => isOpen(one) && one[0] !== `turn ${room.turnId}`);
}

export function noteSettlement(room, settlement) {
  const turn = turnOf(room, settlement.turn_id);
  if (turn.end !== null) return;
  turn.end = turn.box.appendChild(ended(settlement));
  grow(room, turn, COST + turn.end.textContent.length);
}

const NO_CHANGES = new Set(["text", "thought", "tool_call", "usage"]);

const HEARD = {
  message: (room, data) => noteMessage(room, data.id, data.state, data.content, data.reason),
  turn(room, data) {
    room.turnId = data.turn_id;
    room.stopping = false;
    room.asks.clear();
    turnOf(room, data.turn_id);
  },
  text: (room, data) => say(room, data, "said"),
  thought: (room, data) => say(room, data, "thought"),
  tool_call(room, data) {
    const turn = turnOf(room, data.turn_id);
    const text = shorten(`${data.name}: ${data.state} ${data.detail}`);
    const line = turn.tools.get(data.id);
    if (line === undefined) {
      const made = make("div", "tool", text);
      turn.tools.set(data.id, made);
      if (turn.tools.size > MOST_PARTS) turn.tools.delete(turn.tools.keys().next().value);
      add(room, turn, made);
    } else {
      if (line.isConnected) growTurn(room, turn, text.length - line.textContent.length);
      line.textContent = text;
    }
  },
  ask(room, data) {
    room.asks.set(data.id, data);
    note(room, data, `asks: ${data.text}`);
  },
  answered: (room, data) => void room.asks.delete(data.ask),
  withdrawn: (room, data) => void room.asks.delete(data.ask),
  usage(room, data) {
    note(room, data, `tokens: ${data.input_tokens ?? "?"} in, ${data.output_tokens ?? "?"} out`);
  },
  stopping(room, data) {
    room.stopping = true;
    room.asks.clear();
    note(room, data, `${data.control.toUpperCase()} ${data.reason}`);
  },
  settlement(room, data) {
    if (room.turnId === data.turn_id) room.turnId = null;
    room.asks.clear();
    noteSettlement(room, data);
  },
  paused: (room) => void (room.paused = true),
  resumed: (room) => void (room.paused = false),
};

export function hear(kind, data) {
  const room = roomOf(data.room);
  if (kind === "forgotten") {
    room.known = false;
    return drop(room);
  }
  rooms.delete(room.name);
  rooms.set(room.name, room);
  room.known = true;
  HEARD[kind]?.(room, data);
  if (NO_CHANGES.has(kind)) return stayAtEnd();
  room.changes++;
  showRoom(room);
  if (room !== view.current) return;
  showAsks();
  stayAtEnd();
}
