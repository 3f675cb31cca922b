// How a turn ended, and the timeline of its stop.

import { make } from "./dom.js";

const STEPS = ["asked", "sent", "acked", "ended", "settled"];
const NAMES = { asked: "asked", sent: "sent", acked: "acknowledged", ended: "ended", settled: "settled" };
const SVG = "http://www.w3.org/2000/svg";

export function ended(settlement) {
  const box = make("div", "end");
  const how = make("span", `ending ${settlement.ending}`, settlement.ending.toUpperCase());
  box.append(how);
  const proof = settlement.proof ? ` proof: ${settlement.proof}` : "";
  box.append(make("span", "note", ` ${settlement.turn_id}${proof}`));
  if (settlement.request?.kind === "recovery") box.append(make("p", "note", "left by a process that is gone"));
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
