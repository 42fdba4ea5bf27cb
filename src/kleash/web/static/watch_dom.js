// Making and updating parts of the page. Data becomes text nodes and attributes, never markup.

/** Make an element. `attributes` are set as they are; one that is a function listens to the event of its name. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of present(children)) element.append(child);
  return element;
}

/** Replace what is in a container; focus stays on the element that has the same `data-focus` as before. */
export function refill(container, ...children) {
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  const filled = document.createDocumentFragment();
  for (const child of present(children)) filled.append(child);
  container.replaceChildren(filled);
  if (focused === undefined) return;
  const again = [...container.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === focused);
  again?.focus({ preventScroll: true });
}

/** Children one by one: a call takes only so many arguments. */
function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined);
}

/** Say something to those who listen rather than look. */
export function say(text) {
  document.getElementById("said").textContent = text;
}

/** Return a function that calls `work` once, `wait` milliseconds after its last call. */
export function debounced(work, wait) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait);
  };
}
