// The visible texts whose contrast is below 4.5, each with its colors.
(() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => ({ ...Object.fromEntries(["r", "g", "b"].map((c) => [c, top[c] * top.a + below[c] * (1 - top.a)])), a: 1 });
  const ground = (node) => {
    if (!node) return parse(matchMedia("(prefers-color-scheme: dark)").matches ? "rgb(0,0,0)" : "rgb(255,255,255)");
    const own = parse(getComputedStyle(node).backgroundColor);
    return own.a === 1 ? own : over(own, ground(node.parentElement));
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((c) => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const faint = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const look = (node, text, pseudo) => {
    if (!text.trim() || !node.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) return;
    const back = ground(node), front = over(parse(getComputedStyle(node, pseudo).color), back);
    const [a, b] = [light(front), light(back)], ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.add(`${ratio.toFixed(2)} ${node.tagName}.${node.className} ${JSON.stringify(text.trim().slice(0, 40))}`);
  };
  while (walker.nextNode()) look(walker.currentNode.parentElement, walker.currentNode.data);
  for (const input of document.querySelectorAll("input, select")) {
    look(input, input.value || "x");
    if (input.placeholder) look(input, input.placeholder, "::placeholder");
  }
  return [...faint];
})()
