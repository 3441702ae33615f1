// A part of a figure with its colours replaced by those of the theme; numbers stay as they are.
function recoloured(part, colours) {
  if (typeof part === "string") return colours[part] ?? part;
  if (Array.isArray(part)) return part.map((one) => recoloured(one, colours));
  if (part === null || typeof part !== "object" || ArrayBuffer.isView(part)) return part;
  const each = Object.entries(part).map(([key, value]) => [key, recoloured(value, colours)]);
  return Object.fromEntries(each);
}
