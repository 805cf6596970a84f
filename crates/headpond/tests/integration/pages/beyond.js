// Run inside a page: what leaves the screen, or could be seen only by scrolling sideways.
for (const fold of document.querySelectorAll("details")) fold.open = true;
const width = document.documentElement.clientWidth;
const found = new Set();

// Heads of stacked tables are there for readers of the screen only.
const isClipped = element =>
  element !== null && (getComputedStyle(element).clipPath !== "none" || isClipped(element.parentElement));

const name = element => {
  const words = element.textContent.trim().replace(/\s+/g, " ").slice(0, 60);
  return `${element.tagName.toLowerCase()}.${element.getAttribute("class") ?? ""}: ${words}`;
};

const look = (box, element) => {
  if (box.width > 0 && (box.right > width + 1 || box.left < -1))
    found.add(`to ${Math.round(box.left)}..${Math.round(box.right)}: ${name(element)}`);
};

for (const element of document.body.querySelectorAll("*")) {
  if (isClipped(element)) continue;
  look(element.getBoundingClientRect(), element);
  const scrolls = getComputedStyle(element).overflowX !== "visible";
  if (scrolls && element.scrollWidth > element.clientWidth + 1)
    found.add(`scrolls to ${element.scrollWidth} of ${element.clientWidth}: ${name(element)}`);
}

const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (isClipped(element)) continue;
  // Word by word: spaces may hang over the end of a line.
  for (const word of texts.currentNode.data.matchAll(/\S+/g)) {
    const range = document.createRange();
    range.setStart(texts.currentNode, word.index);
    range.setEnd(texts.currentNode, word.index + word[0].length);
    for (const box of range.getClientRects()) look(box, element);
  }
}

const told = document.createElement("output");
told.textContent = [`beyond ${width}`, ...found, "end of beyond"].join("\n");
document.body.append(told);
