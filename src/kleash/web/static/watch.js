// The dashboard: which page the address asks for, the theme, and what goes wrong on the way.

import { Problem } from "/static/watch_api.js";
import { showCompare } from "/static/watch_compare.js";
import { el } from "/static/watch_dom.js";
import { forgetTones } from "/static/watch_paint.js";
import { showRun } from "/static/watch_run.js";
import { showRuns } from "/static/watch_runs.js";

const THEMES = ["auto", "light", "dark"];
const THEME_KEY = "kleash.theme";
const RETRY_MS = 3_000;

const $ = (id) => document.getElementById(id);
const main = $("main");
let view = { close() {}, recolour() {} };

/** What a part of the page may use of the whole. */
function newPage() {
  const page = {
    live: true,
    drawn: false, // a view sets it once there is something that a new start would throw away
    connected: (on) => page.live && showConnection(on),
    /** Do something that asks the server; say what went wrong where it does. */
    async guarded(work) {
      try {
        await work();
        if (page.live) $("trouble").hidden = true;
      } catch (error) {
        if (error.name === "AbortError" || !page.live) return;
        if (!(error instanceof Problem)) throw error;
        $("trouble").replaceChildren(
          el("p", {}, error.message),
          error.gone
            ? el("a", { href: "#/", class: "button" }, "All runs")
            : el("button", { type: "button", click: show }, "Try again now"),
        );
        $("trouble").hidden = false;
        if (!page.drawn) main.replaceChildren();
        if (!error.gone && !page.drawn) setTimeout(() => page.live && show(), RETRY_MS);
      }
    },
  };
  return page;
}

let page = newPage();

/** Show the page that the address asks for. */
function show() {
  view.close();
  page.live = false;
  page = newPage();
  $("trouble").hidden = true;
  document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
  main.replaceChildren(el("p", { class: "nothing" }, "Reading …"));
  const [kind, given] = location.hash.replace(/^#\/?/, "").split("/");
  const ids = named(given ?? "");
  main.dataset.page = kind || "runs";
  document.title = "Kleash watch";
  if (kind === "run" && ids.length === 1) view = showRun(main, page, ids[0]);
  else if (kind === "compare" && ids.length > 1) view = showCompare(main, page, ids);
  else view = showRuns(main, page);
  scrollTo(0, 0);
}

/** The ids in an address; a malformed address names none. */
function named(given) {
  try {
    return given.split(",").filter(Boolean).map(decodeURIComponent);
  } catch {
    return [];
  }
}

function showConnection(on) {
  $("connection").textContent = on ? "live" : "not connected: the numbers may be old";
  $("connection").dataset.on = String(on);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem(THEME_KEY, theme);
  $("theme").textContent = `Theme: ${theme}`;
  $("theme").setAttribute("aria-label", `Theme: ${theme}. Change it.`);
  recolour();
}

/** Canvases do not follow the style sheet by themselves. */
function recolour() {
  forgetTones();
  view.recolour();
}

$("theme").addEventListener("click", () => {
  const at = THEMES.indexOf(document.documentElement.dataset.theme);
  setTheme(THEMES[(at + 1) % THEMES.length]);
});
$("help").addEventListener("click", () => $("help-dialog").showModal());
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
const kept = localStorage.getItem(THEME_KEY);
setTheme(THEMES.includes(kept) ? kept : "auto");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
addEventListener("hashchange", show);
show();
