// Questions that wait for a person.

import { $, attempt, button, make } from "./dom.js";
import { showRoom, view } from "./rooms.js";
import { call, pathOf } from "./wire.js";

const asked = (room, ask) => JSON.stringify([room.name, ask.turn_id, ask.id, ask.text, ask.choices]);

// An id may come again, with another text: what is shown is what is answered.
export function showAsks() {
  const room = view.current;
  const asks = room === null ? [] : [...room.asks.values()];
  const shown = [...$("asks").children].map((box) => box.dataset.asked);
  const wanted = asks.map((ask) => asked(room, ask));
  if (wanted.length === shown.length && wanted.every((one, index) => one === shown[index])) return;
  const had = $("asks").contains(document.activeElement);
  $("asks").replaceChildren(...asks.map((ask) => question(room, ask)));
  if (had) ($("asks").querySelector("button, input") ?? $("text")).focus();
}

function question(room, ask) {
  const box = make("form", "ask");
  const row = make("div", "row");
  const reply = (text) => attempt(`the answer in ${room.name}`, () => answer(room, ask, text));
  box.dataset.asked = asked(room, ask);
  const text = make("p", "", ask.text);
  text.tabIndex = 0; // a long one is scrolled in its own box, above its buttons
  box.append(text, row);
  row.append(...ask.choices.map((choice) => button(choice, () => reply(choice))));
  if (ask.choices.length === 0) {
    const input = make("input");
    input.setAttribute("aria-label", ask.text);
    input.required = true;
    row.append(input, make("button", "", "Answer"));
    box.addEventListener("submit", () => reply(input.value));
  }
  box.addEventListener("submit", (event) => event.preventDefault());
  return box;
}

async function answer(room, ask, reply) {
  try {
    await call("POST", pathOf(room.name, "answers"), { ask: ask.id, turn_id: ask.turn_id, reply });
  } catch (error) {
    if (error.status !== 409) throw error;
    forget(room, ask);
    throw error;
  }
  forget(room, ask);
}

function forget(room, ask) {
  if (room.asks.get(ask.id) !== ask) return;
  room.asks.delete(ask.id);
  showRoom(room);
  showAsks();
}
