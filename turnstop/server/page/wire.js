// Talking with the server: calls, and the stream of what happens.

const PATIENCE = 4000; // milliseconds until a call counts as unheard
const SILENCE = 45000; // milliseconds; the server says something every 15 s
const TRIES = 7; // a browser may hold six connections to a server, each of which may be dead

let token = "";

export const hasToken = () => token !== "";

export function useToken(given) {
  token = given;
}

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const pause = (tries) => new Promise((done) => setTimeout(done, Math.min(10000, 300 * 2 ** tries)));

// crypto.randomUUID is not there where the page came by plain HTTP from another machine.
export function newId() {
  return [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(36)).join("-");
}

// What has an id is done once, however often it is sent: where no answer came, it is sent again.
export async function call(method, path, body) {
  const most = body && !body.id ? 1 : TRIES;
  for (let tries = 1; ; tries++) {
    try {
      return await callOnce(method, path, body);
    } catch (error) {
      if (error instanceof Refused) throw error;
      if (tries === most) throw new Error("no answer from the server");
      if (error.name !== "AbortError") await pause(tries);
    }
  }
}

async function callOnce(method, path, body) {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), PATIENCE);
  try {
    const headers = { Authorization: `Bearer ${token}` };
    const request = { method, headers, body: body && JSON.stringify(body), signal: late.signal };
    const response = await fetch(path, request);
    const text = await response.text();
    if (response.ok) return JSON.parse(text);
    throw new Refused(response.status, errorIn(text) ?? response.statusText);
  } finally {
    clearTimeout(timer);
  }
}

function errorIn(text) {
  try {
    return JSON.parse(text).error;
  } catch {
    return undefined;
  }
}

// A browser takes these for a part of the path, however they are written: /rooms/../stop is /stop.
export function pathOf(room, what) {
  if (["", ".", ".."].includes(room)) throw new Error(`no room can be called "${room}": it means something in a URL`);
  return `/rooms/${encodeURIComponent(room)}/${what}`;
}

// The events of all rooms, taken up again where the connection broke, or said nothing for too long.
export class Stream {
  lastId = "";
  #number = 0;
  #line = null;

  constructor(hear, tell) {
    this.hear = hear;
    this.tell = tell;
  }

  leave() {
    this.#line?.abort();
    return ++this.#number;
  }

  async follow() {
    const mine = this.leave();
    for (let tries = 0; mine === this.#number; tries++) {
      const line = (this.#line = new AbortController());
      let timer;
      const listen = () => {
        clearTimeout(timer);
        timer = setTimeout(() => line.abort(), SILENCE);
      };
      try {
        listen();
        const body = await this.#open(line.signal);
        tries = 0;
        this.tell("connected");
        await this.#read(body.getReader(), listen);
        this.tell("the server has ended");
      } catch (error) {
        if (mine !== this.#number) return;
        if (error.status === 401) return document.dispatchEvent(new Event("no-token"));
        this.tell(error.status ? `connecting again: ${error.message}` : "connecting again");
      } finally {
        clearTimeout(timer);
      }
      await pause(tries);
    }
  }

  async #open(signal) {
    const headers = { Authorization: `Bearer ${token}` };
    if (this.lastId) headers["Last-Event-ID"] = this.lastId;
    const response = await fetch("/events", { headers, signal });
    if (response.ok) return response.body;
    throw new Refused(response.status, errorIn(await response.text()) ?? response.statusText);
  }

  async #read(reader, listen) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      listen();
      const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = blocks.pop();
      blocks.forEach((block) => this.#hearOne(block));
    }
  }

  #hearOne(block) {
    const fields = {};
    for (const line of block.split("\n")) {
      const at = line.indexOf(": ");
      if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
    }
    if (fields.data === undefined) return;
    const epoch = (id) => id.split("-")[0];
    const isAnother = this.lastId !== "" && epoch(this.lastId) !== epoch(fields.id);
    this.lastId = fields.id;
    this.hear(fields.event, JSON.parse(fields.data), isAnother);
  }
}
