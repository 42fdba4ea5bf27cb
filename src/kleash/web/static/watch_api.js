// The server's answers: JSON once, or a stream that says when something has changed.

const TIMEOUT_MS = 20_000;
const RETRY_MS = 3_000;

export class Problem extends Error {
  constructor(message, gone) {
    super(message);
    this.gone = gone; // asking again is of no use
  }
}

/** Ask for JSON; `parameters` that are empty are left out. A refusal is a `Problem` with the server's sentence. */
export async function ask(path, parameters = {}, signal = undefined) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = given.length > 0 ? `?${new URLSearchParams(given)}` : "";
  const signals = [AbortSignal.timeout(TIMEOUT_MS), ...(signal ? [signal] : [])];
  let answer, text;
  try {
    answer = await fetch(path + query, { signal: AbortSignal.any(signals) });
    text = await answer.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem("The server does not answer. The page tries again by itself.", false);
  }
  if (answer.ok) return JSON.parse(text);
  throw new Problem(sentence(text) || `The server answered ${answer.status}.`, answer.status < 500);
}

/** Ask for many at once what one address has too little room for, and put the answers of `keys` together. */
export async function askSeries(id, keys, after, points) {
  const batches = [];
  for (let at = 0; at < keys.length; at += 60) batches.push(keys.slice(at, at + 60));
  const path = `/api/runs/${encodeURIComponent(id)}/series`;
  const answers = await Promise.all(batches.map((some) => ask(path, { keys: some.join(","), after, points })));
  return {
    last: Math.max(-1, ...answers.map((answer) => answer.last_step ?? -1)),
    series: Object.assign({}, ...answers.map((answer) => answer.series)),
    reduced: answers.some((answer) => answer.reduced),
  };
}

/**
 * Listen to a stream until the function that is returned is called; `connected` hears true and false.
 *
 * A browser has six connections to a server, so a tab that nobody looks at lets go of its stream; it is told where
 * things stand when it is back.
 */
export function listen(path, changed, connected) {
  let source = null;
  let timer = 0;
  const shut = () => {
    clearTimeout(timer);
    source?.close();
  };
  const open = () => {
    source = new EventSource(path);
    source.onopen = () => connected(true);
    source.onmessage = (message) => changed(JSON.parse(message.data));
    source.onerror = () => {
      connected(false);
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, RETRY_MS);
    };
  };
  const look = () => {
    shut();
    if (document.hidden) connected(false);
    else open();
  };
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    document.removeEventListener("visibilitychange", look);
    shut();
  };
}

function sentence(text) {
  try {
    return JSON.parse(text).problem ?? text;
  } catch {
    return text;
  }
}
