/** One way to draw on the screen, into a PNG and into an SVG, so that an exported picture is the picture on the page. */

export type Fill = string | { stripes: string };

export interface Stroke {
  color: string;
  width?: number;
  dash?: readonly number[];
}

export interface TextStyle {
  color: string;
  size?: number;
  align?: "left" | "center" | "right";
  weight?: number;
  /** Clip what is longer than this, with an ellipsis. */
  room?: number;
  upwards?: boolean;
}

export interface Pen {
  rect(x: number, y: number, width: number, height: number, fill: Fill): void;
  /** A line through points x0, y0, x1, y1, ...; a point that is not finite interrupts it. */
  line(points: ArrayLike<number>, stroke: Stroke): void;
  polygon(points: ArrayLike<number>, fill: string): void;
  /** `y` is the middle of the text. */
  text(x: number, y: number, words: string, style: TextStyle): void;
  image(image: HTMLCanvasElement, x: number, y: number, width: number, height: number): void;
}

export const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

const STRIPE = 5;

export class CanvasPen implements Pen {
  private readonly patterns = new Map<string, CanvasPattern>();
  private readonly widths = new Map<string, string>();

  constructor(readonly context: CanvasRenderingContext2D) {}

  rect(x: number, y: number, width: number, height: number, fill: Fill): void {
    this.context.fillStyle = typeof fill === "string" ? fill : this.stripes(fill.stripes);
    this.context.fillRect(x, y, width, height);
    if (typeof fill !== "string") {
      this.context.strokeStyle = fill.stripes;
      this.context.lineWidth = 1;
      this.context.setLineDash([]);
      this.context.strokeRect(x + 0.5, y + 0.5, Math.max(0, width - 1), height - 1);
    }
  }

  line(points: ArrayLike<number>, stroke: Stroke): void {
    const { context } = this;
    context.strokeStyle = stroke.color;
    context.lineWidth = stroke.width ?? 1;
    context.lineJoin = "round";
    context.setLineDash([...(stroke.dash ?? [])]);
    context.beginPath();
    for (const [x, y, starts] of vertices(points)) {
      if (starts) context.moveTo(x, y);
      else context.lineTo(x, y);
    }
    context.stroke();
  }

  polygon(points: ArrayLike<number>, fill: string): void {
    this.context.fillStyle = fill;
    this.context.beginPath();
    for (const [x, y, starts] of vertices(points)) {
      if (starts) this.context.moveTo(x, y);
      else this.context.lineTo(x, y);
    }
    this.context.closePath();
    this.context.fill();
  }

  text(x: number, y: number, words: string, style: TextStyle): void {
    const { context } = this;
    context.font = fontOf(style);
    context.fillStyle = style.color;
    context.textAlign = style.align ?? "left";
    context.textBaseline = "middle";
    const shown = style.room === undefined ? words : this.shortened(words, style.room, context.font);
    if (!style.upwards) {
      context.fillText(shown, x, y);
      return;
    }
    context.save();
    context.translate(x, y);
    context.rotate(-Math.PI / 2);
    context.fillText(shown, 0, 0);
    context.restore();
  }

  image(image: HTMLCanvasElement, x: number, y: number, width: number, height: number): void {
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(image, x, y, width, height);
  }

  private shortened(words: string, room: number, font: string): string {
    const key = `${font}|${room}|${words}`;
    const known = this.widths.get(key);
    if (known !== undefined) return known;
    let shown = words;
    if (this.context.measureText(words).width > room) {
      let [fits, tooLong] = [1, words.length];
      while (tooLong - fits > 1) {
        const middle = (fits + tooLong) >> 1;
        if (this.context.measureText(`${words.slice(0, middle)}…`).width > room) tooLong = middle;
        else fits = middle;
      }
      shown = `${words.slice(0, fits)}…`;
    }
    if (this.widths.size > 5000) this.widths.clear();
    this.widths.set(key, shown);
    return shown;
  }

  private stripes(color: string): CanvasPattern | string {
    const known = this.patterns.get(color);
    if (known) return known;
    const tile = document.createElement("canvas");
    tile.width = tile.height = STRIPE * 2;
    const context = tile.getContext("2d");
    if (!context) return color;
    context.strokeStyle = color;
    context.lineWidth = STRIPE * 0.8;
    for (const offset of [-STRIPE * 2, 0, STRIPE * 2]) {
      context.beginPath();
      context.moveTo(offset - STRIPE, STRIPE * 3);
      context.lineTo(offset + STRIPE * 3, -STRIPE);
      context.stroke();
    }
    const pattern = this.context.createPattern(tile, "repeat");
    if (!pattern) return color;
    pattern.setTransform(new DOMMatrix().scale(0.5));
    this.patterns.set(color, pattern);
    return pattern;
  }
}

export class SvgPen implements Pen {
  private readonly parts: string[] = [];
  private readonly stripes = new Map<string, string>();

  constructor(
    private readonly width: number,
    private readonly height: number,
  ) {}

  rect(x: number, y: number, width: number, height: number, fill: Fill): void {
    if (width <= 0 || height <= 0) return;
    const box = `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"`;
    if (typeof fill === "string") this.parts.push(`<rect ${box} fill="${escaped(fill)}"/>`);
    else this.parts.push(`<rect ${box} fill="url(#${this.stripe(fill.stripes)})" stroke="${escaped(fill.stripes)}"/>`);
  }

  line(points: ArrayLike<number>, stroke: Stroke): void {
    const dash = stroke.dash?.length ? ` stroke-dasharray="${stroke.dash.join(" ")}"` : "";
    this.parts.push(
      `<path d="${pathOf(points)}" fill="none" stroke="${escaped(stroke.color)}" stroke-width="${stroke.width ?? 1}" ` +
        `stroke-linejoin="round"${dash}/>`,
    );
  }

  polygon(points: ArrayLike<number>, fill: string): void {
    this.parts.push(`<path d="${pathOf(points)}Z" fill="${escaped(fill)}"/>`);
  }

  text(x: number, y: number, words: string, style: TextStyle): void {
    const anchor = { left: "start", center: "middle", right: "end" }[style.align ?? "left"];
    const turn = style.upwards ? ` transform="rotate(-90 ${short(x)} ${short(y)})"` : "";
    const most =
      style.room === undefined ? words.length : Math.max(1, Math.floor(style.room / ((style.size ?? 12) * 0.52)));
    const shown = words.length > most ? `${words.slice(0, most)}…` : words;
    this.parts.push(
      `<text x="${short(x)}" y="${short(y)}" dy="0.35em" font-size="${style.size ?? 12}" font-weight="${style.weight ?? 400}" ` +
        `fill="${escaped(style.color)}" text-anchor="${anchor}"${turn}>${escaped(shown)}</text>`,
    );
  }

  image(image: HTMLCanvasElement, x: number, y: number, width: number, height: number): void {
    this.parts.push(
      `<image x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" ` +
        `preserveAspectRatio="none" style="image-rendering:pixelated" href="${image.toDataURL()}"/>`,
    );
  }

  /** The whole file. */
  svg(): string {
    const patterns = [...this.stripes].map(
      ([color, id]) =>
        `<pattern id="${id}" width="${STRIPE}" height="${STRIPE}" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
        `<rect width="${STRIPE * 0.4}" height="${STRIPE}" fill="${escaped(color)}"/></pattern>`,
    );
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" ` +
      `viewBox="0 0 ${this.width} ${this.height}" font-family="${escaped(FONT)}">` +
      `<defs>${patterns.join("")}</defs>${this.parts.join("\n")}</svg>\n`
    );
  }

  private stripe(color: string): string {
    const known = this.stripes.get(color) ?? `stripes${this.stripes.size}`;
    this.stripes.set(color, known);
    return known;
  }
}

function fontOf(style: TextStyle): string {
  return `${style.weight ?? 400} ${style.size ?? 12}px ${FONT}`;
}

function* vertices(points: ArrayLike<number>): Generator<[number, number, boolean]> {
  let starts = true;
  for (let i = 0; i + 1 < points.length; i += 2) {
    const x = points[i] as number;
    const y = points[i + 1] as number;
    if (!Number.isFinite(x) || !Number.isFinite(y)) {
      starts = true;
      continue;
    }
    yield [x, y, starts];
    starts = false;
  }
}

function pathOf(points: ArrayLike<number>): string {
  let path = "";
  for (const [x, y, starts] of vertices(points)) path += `${starts ? "M" : "L"}${short(x)} ${short(y)}`;
  return path;
}

function short(value: number): string {
  return String(Math.round(value * 100) / 100);
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
