/** The phase map: many short runs over a grid of settings, drawn as they finish; a click loads one. */
import {
  type MapAxes,
  type MapQuantity,
  type MapRequest,
  type Reply,
  type Setting,
  cellSetting,
} from "../engine/index.ts";
import { numberLabel } from "./axis.ts";
import { h } from "./dom.ts";
import type { Pen } from "./pen.ts";
import { Picture } from "./picture.ts";
import { engineWorker } from "./player.ts";
import type { Box } from "./scene.ts";
import { explain } from "./tooltip.ts";
import type { Palette } from "./palette.ts";

export interface MapEvents {
  setting(): Setting;
  steps(): number;
  palette(): Palette;
  /** Watch the run of a cell. */
  load(setting: Setting, steps: number, ownClasses: boolean): void;
  refuse(sentence: string): void;
}

const QUANTITIES: Record<MapQuantity, string> = {
  entropy: "final entropy of attention (nats)",
  winner: "share of the winner at the end",
  snap: "step at which attention snapped",
};

const RATES = Array.from({ length: 9 }, (_, i) => Number((0.125 * 2 ** i).toPrecision(3)));
const RATIOS = [0.25, 0.5, 1, 2, 5, 10, 20, 50, 100];
const COUNTS = [2, 3, 4, 6, 8, 10, 12, 16];
const MOST_STEPS = 2000;
const LEFT = 44;
const BOTTOM = 34;

export class PhaseMap {
  readonly element: HTMLElement;
  private readonly axes = h(
    "select",
    { id: "map-axes" },
    h("option", { value: "lr_y,lr_z" }, "decoder rate and attention rate"),
    h("option", { value: "ratio,K" }, "ratio of the rates and number of classes"),
  );
  private readonly quantity = h(
    "select",
    { id: "map-quantity" },
    ...Object.entries(QUANTITIES).map(([value, label]) => h("option", { value }, label)),
  );
  private readonly button = h("button", { type: "button", class: "primary" }, "Compute the map");
  private readonly said = h("p", { class: "soft", role: "status" });
  private readonly picture: Picture;
  private worker: Worker | null = null;
  private values: number[] = [];
  private request: MapRequest | null = null;
  private columns: readonly number[] = RATES;
  private rows: readonly number[] = RATES;
  private cursor = 0;
  private waiting = false;

  constructor(private readonly events: MapEvents) {
    this.picture = new Picture(
      "Phase map; arrow keys choose a cell, Enter loads it",
      (width) => Math.min(420, width * 0.72),
      (pen, box) => this.draw(pen, box),
      { tabindex: "0", role: "application", id: "map" },
    );
    this.button.addEventListener("click", () => (this.worker ? this.stop("Stopped.") : this.start()));
    const { canvas } = this.picture;
    canvas.addEventListener("click", (event) => this.choose(this.cellAt(event)));
    canvas.addEventListener("pointermove", (event) => this.say(this.cellAt(event)));
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.element = h(
      "div",
      { class: "fold phase-map" },
      h("p", { class: "soft" }, "One run for each cell, with the present data and controls. Click a cell to watch it."),
      explain(
        h("div", { class: "control" }, h("label", { for: "map-axes" }, "Over"), this.axes),
        "What changes from cell to cell.",
        this.axes,
      ),
      explain(
        h("div", { class: "control" }, h("label", { for: "map-quantity" }, "Shows"), this.quantity),
        "What the color of a cell means.",
        this.quantity,
      ),
      this.button,
      h("div", { class: "place" }, canvas),
      this.said,
    );
    this.picture.canvas.hidden = true;
  }

  redraw(): void {
    if (!this.picture.canvas.hidden) this.picture.draw();
  }

  private start(): void {
    const axes = this.axes.value as MapAxes;
    [this.columns, this.rows] = axes === "lr_y,lr_z" ? [RATES, RATES] : [RATIOS, COUNTS];
    this.values = new Array<number>(this.columns.length * this.rows.length).fill(Number.NaN);
    this.request = {
      setting: this.events.setting(),
      axes,
      quantity: this.quantity.value as MapQuantity,
      x: [...this.columns],
      y: [...this.rows],
      steps: Math.min(this.events.steps(), MOST_STEPS),
    };
    this.cursor = 0;
    this.picture.canvas.hidden = false;
    this.button.textContent = "Stop";
    this.worker = engineWorker();
    this.worker.onmessage = ({ data }: MessageEvent<Reply>) => this.receive(data);
    this.worker.onerror = (event) => this.stop(`The map failed: ${event.message}.`);
    this.worker.postMessage({ type: "map", map: this.request });
    this.schedule();
  }

  private receive(reply: Reply): void {
    if (reply.type === "cell") {
      this.values[reply.row * this.columns.length + reply.column] = reply.value;
      this.schedule();
    } else if (reply.type === "mapped")
      this.stop(`Done: ${this.values.length} runs of ${this.request?.steps.toLocaleString("en-US")} steps each.`);
    else if (reply.type === "error") {
      this.stop("");
      this.events.refuse(reply.message);
    }
  }

  private stop(words: string): void {
    this.worker?.terminate();
    this.worker = null;
    this.button.textContent = "Compute the map";
    this.said.textContent = words;
    this.schedule();
  }

  private schedule(): void {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.picture.draw();
    });
  }

  private key(event: KeyboardEvent): void {
    const across = this.columns.length;
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: across, ArrowDown: -across }[event.key];
    if (move === undefined && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    if (move === undefined) return this.choose(this.cursor);
    this.cursor = Math.max(0, Math.min(this.values.length - 1, this.cursor + move));
    this.say(this.cursor);
    this.schedule();
  }

  private choose(cell: number | null): void {
    if (cell === null || !this.request) return;
    this.cursor = cell;
    const setting = cellSetting(this.request, cell % this.columns.length, Math.floor(cell / this.columns.length));
    this.events.load(setting, this.request.steps, setting.classes !== this.request.setting.classes);
    this.schedule();
  }

  private say(cell: number | null): void {
    if (cell === null || !this.request) return;
    const { axes, quantity } = this.request;
    const [x, y] = [this.columns[cell % this.columns.length], this.rows[Math.floor(cell / this.columns.length)]];
    const value = this.values[cell];
    const place = axes === "lr_y,lr_z" ? `decoder rate ${x}, attention rate ${y}` : `ratio ${x}, ${y} classes`;
    const missing = this.worker ? "not computed yet" : quantity === "snap" ? "it has not snapped" : "the run diverged";
    this.said.textContent = `${place}: ${Number.isFinite(value) ? `${QUANTITIES[quantity]} ${numberLabel(value)}` : missing}`;
  }

  private plot(box: Box): Box {
    return { x: box.x + LEFT, y: box.y + 6, width: box.width - LEFT - 8, height: box.height - BOTTOM - 30 };
  }

  private cellAt(event: MouseEvent): number | null {
    const plot = this.plot(this.picture.box);
    const { x, y } = this.picture.where(event);
    const column = Math.floor(((x - plot.x) / plot.width) * this.columns.length);
    const row = this.rows.length - 1 - Math.floor(((y - plot.y) / plot.height) * this.rows.length);
    const inside = column >= 0 && row >= 0 && column < this.columns.length && row < this.rows.length;
    return inside ? row * this.columns.length + column : null;
  }

  private draw(pen: Pen, box: Box): void {
    const palette = this.events.palette();
    const plot = this.plot(box);
    const [across, down] = [plot.width / this.columns.length, plot.height / this.rows.length];
    const known = this.values.filter(Number.isFinite);
    const [least, most] = [Math.min(...known), Math.max(...known)];
    this.values.forEach((value, cell) => {
      const [column, row] = [cell % this.columns.length, Math.floor(cell / this.columns.length)];
      const [x, y] = [plot.x + column * across, plot.y + plot.height - (row + 1) * down];
      const share = most > least ? (value - least) / (most - least) : 0.5;
      pen.rect(x, y, across - 1, down - 1, Number.isFinite(value) ? shade(palette, share) : palette.wash);
      if (cell === this.cursor)
        pen.line([x, y, x + across - 1, y, x + across - 1, y + down - 1, x, y + down - 1, x, y], {
          color: palette.ink,
          width: 2,
        });
    });
    this.columns.forEach((value, i) =>
      pen.text(plot.x + (i + 0.5) * across, plot.y + plot.height + 10, numberLabel(value), {
        color: palette.soft,
        size: 10,
        align: "center",
      }),
    );
    this.rows.forEach((value, i) =>
      pen.text(plot.x - 5, plot.y + plot.height - (i + 0.5) * down, numberLabel(value), {
        color: palette.soft,
        size: 10,
        align: "right",
      }),
    );
    const rates = this.request?.axes === "lr_y,lr_z";
    pen.text(plot.x + plot.width / 2, plot.y + plot.height + 25, rates ? "decoder rate" : "decoder rate / attention rate", {
      color: palette.ink,
      size: 11,
      align: "center",
    });
    pen.text(box.x + 8, plot.y + plot.height / 2, rates ? "attention rate" : "classes", {
      color: palette.ink,
      size: 11,
      align: "center",
      upwards: true,
    });
    if (known.length > 1) this.drawLegend(pen, plot, box, palette, least, most);
  }

  private drawLegend(pen: Pen, plot: Box, box: Box, palette: Palette, least: number, most: number): void {
    const y = box.y + box.height - 14;
    const start = plot.x + 46;
    const width = Math.min(160, plot.width - 100);
    for (let i = 0; i < 40; i++)
      pen.rect(start + (i * width) / 40, y - 5, width / 40 + 0.5, 10, shade(palette, i / 39));
    pen.text(start - 5, y, numberLabel(least), { color: palette.soft, size: 11, align: "right" });
    pen.text(start + width + 5, y, numberLabel(most), { color: palette.soft, size: 11 });
  }
}

function shade(palette: Palette, share: number): string {
  const value = palette.ramps.distinct[Math.round(20 + 215 * Math.min(1, Math.max(0, share)))];
  return `rgb(${value & 255},${(value >> 8) & 255},${(value >> 16) & 255})`;
}
