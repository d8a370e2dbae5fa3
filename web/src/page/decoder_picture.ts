/** The decoder's logits: a row for each class, a column for each next token; the right one has a frame. */
import type { Pen } from "./pen.ts";
import type { Box, Scene } from "./scene.ts";

const MOST_CLASSES = 32;

export function drawDecoder(pen: Pen, box: Box, scene: Scene): void {
  const { palette, frame } = scene;
  const all = scene.rows.length;
  const first = Math.max(0, Math.min(scene.focus - MOST_CLASSES / 2, all - MOST_CLASSES));
  const rows = scene.rows.slice(first, first + MOST_CLASSES);
  const count = rows.length;
  pen.text(box.x, box.y + 8, "Decoder’s logits", { color: palette.ink, size: 12, weight: 600 });
  let largest = 1e-12;
  for (const value of frame.decoder) if (Math.abs(value) > largest) largest = Math.abs(value);
  const named = count <= 12;
  const left = named ? Math.min(90, box.width * 0.25) : 8;
  const plot = { x: box.x + left, y: box.y + 38, width: box.width - left - 8, height: box.height - 44 };
  const [across, down] = [plot.width / count, plot.height / count];
  pen.text(plot.x, box.y + 27, "next token →", { color: palette.soft, size: 11 });
  if (named) pen.text(box.x, box.y + 27, "class ↓", { color: palette.soft, size: 11 });
  for (let i = 0; i < count; i++) {
    if (named)
      pen.text(box.x, plot.y + (i + 0.5) * down, rows[i].next, {
        color: palette.soft,
        size: Math.min(12, down),
        room: left - 8,
      });
    for (let j = 0; j < count; j++) {
      const value = frame.decoder[(first + i) * all + first + j];
      const shade = Math.round(127.5 * (1 + Math.max(-1, Math.min(1, value / largest))));
      const [x, y] = [plot.x + j * across, plot.y + i * down];
      pen.rect(x, y, across - 1, down - 1, palette.diverging[Number.isFinite(value) ? shade : 128]);
      if (i === j)
        pen.line([x, y, x + across - 1, y, x + across - 1, y + down - 1, x, y + down - 1, x, y], {
          color: palette.ink,
          width: 1.5,
        });
      if (across > 36 && down > 13) {
        const dark = Math.abs(shade - 127.5) > 70;
        pen.text(x + across / 2, y + down / 2, number(value), {
          color: dark ? palette.onHeat : palette.ink,
          size: 11,
          align: "center",
        });
      }
    }
  }
}

function number(value: number): string {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}
