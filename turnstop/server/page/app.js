// The page of `turnstop serve`: what a person does, and what follows from it.

import { showAsks } from "./asks.js";
import { $, attempt } from "./dom.js";
import * as Rooms from "./rooms.js";
import { call, hasToken, newId, pathOf, Stream, useToken } from "./wire.js";

const KEY = "turnstop token";
const ROUNDS = 5;
const { view } = Rooms;

const stream = new Stream(hear, tell);

function tell(text) {
  $("connection").textContent = text;
  view.connected = text === "connected";
  Rooms.showState();
  // What is kept of the past comes first, and would be told over what is new.
  if (view.connected) setTimeout(refresh, 200);
}

function hear(kind, data, isAnother) {
  if (isAnother) Rooms.beginAnew();
  if (kind !== "gap") return Rooms.hear(kind, data);
  Rooms.all().forEach(Rooms.noteGap);
  refresh();
}

const refresh = (rounds = ROUNDS) => attempt("the rooms", () => ask(rounds));

// A room of which something was heard meanwhile is asked for again: the answer may be older.
async function ask(rounds) {
  const before = new Map(Rooms.all().map((room) => [room, room.changes]));
  const [health, found] = await Promise.all([call("GET", "/health"), call("GET", "/rooms")]);
  $("agent").textContent = health.agent;
  let isLate = false;
  for (const state of found) {
    const room = Rooms.roomOf(state.room);
    const isSame = room.changes === (before.get(room) ?? 0);
    before.delete(room);
    if (isSame) await take(room, state);
    else isLate = true;
  }
  for (const [room, changes] of before) if (room.known && room.changes === changes) Rooms.drop(room);
  showAsks();
  if (isLate && rounds > 1) setTimeout(() => refresh(rounds - 1), 500);
}

async function take(room, state) {
  room.known = true;
  room.paused = state.paused;
  room.turnId = state.turn_id;
  room.asks = new Map(state.asks.map((one) => [one.id, { turn_id: state.turn_id, ...one }]));
  if (state.waiting === 0) {
    for (const id of [...room.waiting]) Rooms.noteMessage(room, id, "no longer waiting");
  }
  Rooms.showRoom(room);
  if (!Rooms.hasOpenTurns(room)) return;
  for (const one of await call("GET", pathOf(room.name, "settlements"))) {
    if (room.entries.has(`turn ${one.turn_id}`)) Rooms.noteSettlement(room, one);
  }
}

// The token.

function askToken(why) {
  if (why) $("token-why").textContent = why;
  if (!$("ask-token").open) $("ask-token").showModal();
}

function begin(token) {
  useToken(token);
  sessionStorage.setItem(KEY, token);
  $("ask-token").close();
  if (!document.hidden) stream.follow();
}

function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) history.replaceState(null, "", location.pathname);
  return given;
}

document.addEventListener("no-token", () => askToken("The server does not know this token."));
$("ask-token").addEventListener("cancel", (event) => event.preventDefault());
$("token-form").addEventListener("submit", () => begin($("token").value.trim()));
window.addEventListener("hashchange", () => {
  const given = takeToken();
  if (given) begin(given);
});

// A browser has six connections to a server: tabs that nobody looks at leave theirs to a stop.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return void (hasToken() && stream.follow());
  stream.leave();
  tell("connecting");
});
window.addEventListener("online", () => {
  if (hasToken() && !document.hidden) stream.follow();
});

// Controls.

function press(kind, reason = "the button") {
  const room = view.current;
  const body = { id: newId(), reason };
  // The turn that was seen, and not the next one.
  if (kind === "interrupt") body.turn_id = room.turnId;
  return attempt(`${kind.toUpperCase()} in ${room.name}`, () => call("POST", pathOf(room.name, kind), body));
}

for (const kind of ["stop", "interrupt", "play"]) $(kind).addEventListener("click", () => press(kind));
$("stop-all").addEventListener("click", () =>
  attempt("STOP in all rooms", () => call("POST", "/stop", { id: newId(), reason: "the button" })),
);
document.addEventListener("keydown", (event) => {
  // Esc also leaves an input method's list.
  if (event.key !== "Escape" || event.repeat || event.isComposing || $("ask-token").open) return;
  if (view.current !== null && Rooms.isBusy(view.current)) press("stop", "the Esc key");
});

// Messages.

async function send(room, content) {
  // The same text again, after it was not known to have arrived, is the same message.
  const id = room.unsent?.content === content ? room.unsent.id : newId();
  room.unsent = null;
  Rooms.write(room, "");
  Rooms.noteMessage(room, id, "sending", content);
  Rooms.goToEnd();
  const post = () => call("POST", pathOf(room.name, "messages"), { content, id });
  const isSent = await attempt(`a message to ${room.name}`, post);
  const state = Rooms.stateOfMessage(room, id);
  if (isSent && state === "sending") Rooms.noteMessage(room, id, "sent");
  // It may have been heard of, though no answer came.
  if (isSent || (state && state !== "sending")) return;
  Rooms.dropMessage(room, id);
  room.unsent = { content, id };
  Rooms.write(room, [content, Rooms.written(room)].filter(Boolean).join("\n"));
}

$("new-room").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = $("room-name").value;
  // Throws where there is no way to ask for such a room.
  attempt("a new room", () => pathOf(name, "")).then((isOne) => {
    if (!isOne) return;
    Rooms.choose(Rooms.roomOf(name));
    $("room-name").value = "";
    $("text").focus();
  });
});
$("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = $("text").value;
  if (view.current === null) {
    $("text").value = "";
    Rooms.choose(Rooms.roomOf("lobby"));
  }
  send(view.current, content);
});
$("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!event.repeat) $("compose").requestSubmit();
});

const kept = takeToken() || sessionStorage.getItem(KEY);
Rooms.showState();
if (kept) begin(kept);
else askToken("");
