// The labelling page. A vote goes three ways, in this order: it is kept in the browser, sent, and forgotten there once
// the server has it. Sending a vote twice is harmless, so one whose answer got lost is simply sent again.

const SETTLE_MS = 200; // a pair is not open to votes before a person can have seen it
const TIMEOUT_MS = 15_000;
const RETRY_MS = [1_000, 2_000, 4_000, 8_000];
const AGREEMENT_MS = 10_000; // it is counted over all votes, so it is asked for now and then only
const NAME_KEY = "kleash.annotator";
const UNSENT_KEY = "kleash.unsent.";

const $ = (id) => document.getElementById(id);
const body = document.body;

let annotator = localStorage.getItem(NAME_KEY) ?? "";
let shown = null; // the pair on the screen
let shownAt = 0;
let exchange = 0; // the newest one with the server: what an older one brings is not shown any more
let failures = 0;
let retryTimer = 0;
let agreementAt = -Infinity;

/** What the page is doing: "name", "sending", "waiting" (for the server to come back), "ready" or "end". */
function setState(state) {
  body.dataset.state = state;
}

// ---------------------------------------------------------------- requests

class Trouble extends Error {
  constructor(message, passing) {
    super(message);
    this.passing = passing; // it may go away by itself
  }
}

async function request(path, sent) {
  const options = { signal: AbortSignal.timeout(TIMEOUT_MS) };
  if (sent !== undefined) {
    options.method = "POST";
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(sent);
  }
  let answer, text;
  try {
    answer = await fetch(path, options);
    text = await answer.text();
  } catch {
    throw new Trouble("The server does not answer.", true);
  }
  if (answer.ok) return JSON.parse(text);
  throw new Trouble(text || `The server answered ${answer.status}.`, answer.status >= 500);
}

// ---------------------------------------------------------------- votes that the server may not have yet

function keep(path, sent) {
  localStorage.setItem(UNSENT_KEY + JSON.stringify([sent.annotator, sent.pair]), JSON.stringify({ path, sent }));
}

function unsentKeys() {
  return Object.keys(localStorage).filter((key) => key.startsWith(UNSENT_KEY));
}

/** Send what is unsent, then show what comes next. */
async function advance(said = "") {
  await talk(
    () => said,
    async () => {
      let screen = null;
      for (const key of unsentKeys()) {
        const kept = localStorage.getItem(key);
        if (kept === null) continue; // another tab has sent it meanwhile
        const { path, sent } = JSON.parse(kept);
        const answer = await request(path, sent);
        localStorage.removeItem(key);
        if (sent.annotator === annotator) screen = answer;
      }
      return screen ?? (await request(`/api/task?${new URLSearchParams({ annotator })}`));
    },
  );
}

/** Ask the server for a screen and show it, or show why that failed; `said()` is announced with it. */
async function talk(said, ask) {
  clearTimeout(retryTimer);
  setState("sending");
  exchange += 1;
  const mine = exchange;
  try {
    const screen = await ask();
    if (mine === exchange) show(screen, said());
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    if (mine === exchange) explain(error, said());
  }
}

function explain(error, said) {
  setState("waiting");
  const waiting = unsentKeys().length > 0;
  const kept = waiting ? " Your vote is kept in this browser and is sent as soon as that works." : "";
  $("trouble-text").textContent = error.message + kept;
  $("again").textContent = waiting ? "Send again now" : "Try again now";
  $("again").onclick = () => advance(said);
  $("drop").hidden = !waiting || error.passing;
  $("trouble").hidden = false;
  if (error.passing) {
    retryTimer = setTimeout(() => advance(said), RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
    failures += 1;
  }
}

function discard() {
  unsentKeys().forEach((key) => localStorage.removeItem(key));
  advance("The vote was discarded.");
}

// ---------------------------------------------------------------- what an annotator does

const WORDS = { left: "left is better", right: "right is better", tie: "a tie", skip: "skipped" };

function choose(choice, strength) {
  if (body.dataset.state !== "ready") return;
  const mark = { left: shown.left.mark, right: shown.right.mark }[choice] ?? choice;
  const sent = { annotator, pair: shown.pair, choice: mark, strength, seconds: secondsShown() };
  keep("/api/vote", sent);
  $("left").classList.toggle("better", choice === "left" || choice === "tie");
  $("right").classList.toggle("better", choice === "right" || choice === "tie");
  advance(`Saved: ${WORDS[choice]}${strength === 2 ? ", clearly" : ""}.`);
}

function flag(note) {
  if (body.dataset.state !== "ready") return;
  keep("/api/flag", { annotator, pair: shown.pair, note: note.trim() || null });
  advance("Saved: flagged.");
}

/** Undoing twice takes two votes back, so it is never sent again by itself: the page asks what the server has. */
async function undo() {
  if (!["ready", "end"].includes(body.dataset.state)) return;
  let said = "If your last pair is not back, undo again.";
  await talk(
    () => said,
    async () => {
      const screen = await request("/api/undo", { annotator });
      said = screen.undone ? "Taken back: vote again." : "There is no vote to take back.";
      return screen;
    },
  );
}

function secondsShown() {
  return Math.round((performance.now() - shownAt) / 100) / 10;
}

// ---------------------------------------------------------------- what the page shows

function show(screen, said) {
  failures = 0;
  $("trouble").hidden = true;
  $("welcome").hidden = true;
  shown = screen.task;
  $("pair").hidden = shown === null;
  $("end").hidden = shown !== null;
  showProgress(screen.progress);
  showWho();
  refreshAgreement(shown === null);
  if (shown === null) showEnd(screen.progress);
  else showPair();
  $("said").textContent = [said, shown === null ? "" : position(screen.progress)].filter(Boolean).join(" ");
}

function showPair() {
  $("prompt").replaceChildren(...shown.prompt.map(turn));
  for (const side of ["left", "right"]) {
    const { text } = shown[side];
    $(side).classList.remove("better");
    $(`${side}-text`).textContent = text.trim() ? text : "(nothing)";
    $(`${side}-text`).classList.toggle("empty", !text.trim());
  }
  window.scrollTo({ top: 0, behavior: "instant" });
  const pair = shown;
  requestAnimationFrame(() => {
    shownAt = performance.now();
    setTimeout(() => pair === shown && body.dataset.state === "sending" && setState("ready"), SETTLE_MS);
  });
}

function showEnd(progress) {
  setState("end");
  $("end-title").textContent = progress.total === 0 ? "No pairs yet" : "Nothing left to compare";
  $("end-text").textContent =
    progress.total === 0
      ? "The queue is empty. Once pairs are added, they show up here."
      : `You compared ${count(progress.done, "pair")}. Thank you.`;
  $("end-title").focus();
}

function turn({ role, content }) {
  const element = document.createElement("div");
  element.className = `turn ${role}`;
  element.append(line("role", role), line("content", content));
  return element;
}

function line(kind, text) {
  const element = document.createElement("p");
  element.className = kind;
  element.textContent = text;
  return element;
}

function showWho() {
  $("who").hidden = false;
  $("who").textContent = `Voting as ${annotator}`;
  $("who").title = "Change the name";
}

function showProgress(progress) {
  $("progress").hidden = false;
  $("meter").max = Math.max(progress.total, 1);
  $("meter").value = progress.total - progress.remaining;
  const asides = [];
  if (progress.skipped) asides.push(`${progress.skipped} skipped`);
  if (progress.flagged) asides.push(`${progress.flagged} flagged`);
  $("counts").textContent = [`${progress.total - progress.remaining} of ${progress.total}`, ...asides].join(" · ");
  const others = Object.entries(progress.by_annotator).filter(([name]) => name !== annotator);
  $("others").textContent = others.map(([name, votes]) => `${name} ${votes}`).join(" · ");
}

function position(progress) {
  return `Pair ${progress.total - progress.remaining + 1} of ${progress.total}.`;
}

async function refreshAgreement(now) {
  if (!now && performance.now() - agreementAt < AGREEMENT_MS) return;
  agreementAt = performance.now();
  try {
    $("agreement").textContent = agreementText(await request("/api/agreement"));
  } catch {
    $("agreement").textContent = "Agreement cannot be read now";
  }
}

function agreementText({ kappa, low, high, pairs, statistic }) {
  if (pairs === 0) return "Agreement: no pair has two votes yet";
  if (kappa === null) return `Agreement: all answers are alike on ${count(pairs, "pair")}`;
  const interval = low === null ? "" : ` (95 % interval ${low.toFixed(2)} to ${high.toFixed(2)})`;
  return `Agreement: ${statistic} ${kappa.toFixed(2)}${interval} on ${count(pairs, "pair")}`;
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

function askName() {
  clearTimeout(retryTimer);
  exchange += 1;
  setState("name");
  ["pair", "end", "progress", "who", "trouble"].forEach((id) => ($(id).hidden = true));
  $("said").textContent = "";
  $("welcome").hidden = false;
  $("name").value = annotator;
  $("name").select();
  $("name").focus();
}

// ---------------------------------------------------------------- keys and buttons

const KEYS = {
  ArrowLeft: (event) => choose("left", event.shiftKey ? 2 : 1),
  ArrowRight: (event) => choose("right", event.shiftKey ? 2 : 1),
  ArrowDown: () => choose("tie"),
  1: () => choose("left", 1),
  2: () => choose("right", 1),
  0: () => choose("tie"),
  t: () => choose("tie"),
  s: () => choose("skip"),
  u: () => undo(),
  Backspace: () => undo(),
  f: () => openFlag(),
  "?": () => $("help-dialog").showModal(),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.closest("input, textarea, dialog") || document.querySelector("dialog[open]")) return;
  const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action && !event.repeat) return;
  if (action || event.target.closest("button")) event.preventDefault(); // a held Enter must not click again
  if (action && !event.repeat) action(event);
}

function openFlag() {
  if (body.dataset.state !== "ready") return;
  $("note").value = "";
  $("flag-dialog").showModal();
  $("note").focus();
}

function onClick(event) {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.choice) choose(button.dataset.choice, Number(button.dataset.strength) || undefined);
  if (button.dataset.action === "undo") undo();
  if (event.detail > 0 && button.closest(".choices")) button.blur(); // the space bar then scrolls and does not click
}

function onName(event) {
  event.preventDefault();
  annotator = $("name").value.trim();
  if (!annotator) return;
  localStorage.setItem(NAME_KEY, annotator);
  $("name").blur();
  advance();
}

document.addEventListener("keydown", onKey);
document.addEventListener("click", onClick);
$("welcome").addEventListener("submit", onName);
$("who").addEventListener("click", askName);
$("help").addEventListener("click", () => $("help-dialog").showModal());
$("flag").addEventListener("click", openFlag);
$("drop").addEventListener("click", discard);
$("look").addEventListener("click", () => advance());
$("flag-form").addEventListener("submit", () => flag($("note").value));
$("flag-cancel").addEventListener("click", () => $("flag-dialog").close());
$("note").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("flag-form").requestSubmit();
});

if (annotator) advance();
else askName();
