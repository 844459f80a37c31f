const report = JSON.parse(document.getElementById("report").textContent);
const main = document.getElementById("main");

/* Every text of the report enters the page by textContent, never as markup. */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((x) => x !== null && x !== undefined && x !== false));
  return element;
}
const el = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const section = (title, ...children) => {
  const part = el("section", {}, el("h2", {}, title), ...children);
  main.append(part);
  return part;
};
const isDark = () => {
  const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  return (document.documentElement.dataset.theme ?? preferred) === "dark";
};
/* The button of the two colour schemes; repaint draws what does not follow by itself. */
function themes(repaint) {
  const button = document.getElementById("theme");
  const name = () => {
    button.textContent = isDark() ? "Light colours" : "Dark colours";
    repaint();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
}
