// Elements, and what is told to a person where something went wrong.

const MOST_TROUBLES = 5;
const troubles = new Map();

export const $ = (id) => document.getElementById(id);

// What agents and people say is put in as text, never as markup.
export function make(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

export function button(text, press) {
  const made = make("button", "", text);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

// A trouble stands until the same thing goes well, or a person has read it.
export async function attempt(what, work) {
  try {
    const found = await work();
    if (troubles.delete(what)) showTroubles();
    return found ?? true;
  } catch (error) {
    troubles.delete(what);
    troubles.set(what, `${what}: ${error.message}`);
    if (troubles.size > MOST_TROUBLES) troubles.delete(troubles.keys().next().value);
    showTroubles();
    if (error.status === 401) document.dispatchEvent(new Event("no-token"));
    return false;
  }
}

function showTroubles() {
  const had = $("trouble").contains(document.activeElement);
  $("trouble").replaceChildren(...[...troubles].map(([what, text]) => trouble(what, text)));
  $("trouble").hidden = troubles.size === 0;
  if (had) ($("trouble").querySelector("button") ?? $("text")).focus();
}

function trouble(what, text) {
  const box = make("div", "row");
  const read = button("Dismiss", () => {
    troubles.delete(what);
    showTroubles();
  });
  box.append(make("p", "", text), read);
  return box;
}
