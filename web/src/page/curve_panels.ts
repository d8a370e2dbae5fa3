/** The curves under the classes: loss, a measure of attention, the decoder, and theory where it is shown. */
import { type CurveChart, drawCurves, plotBox } from "./curve_picture.ts";
import { MEASURE_LABELS, MEASURE_TIPS, lossChart, measureChart } from "./curves.ts";
import { drawDecoder } from "./decoder_picture.ts";
import { h } from "./dom.ts";
import { Picture } from "./picture.ts";
import type { Scene } from "./scene.ts";
import type { Measure } from "./state.ts";
import { growthChart, leadChart } from "./theory_chart.ts";
import { explain } from "./tooltip.ts";

const HEIGHT = 190;
const KEEP = "Keep these curves to compare";

export interface CurveEvents {
  measure(measure: Measure): void;
  /** Keep this run's curves, or none. */
  keep(scene: Scene | null): void;
  lookAt(step: number): void;
}

/** A place for curves, how they are made from a scene, and those that are shown. */
interface Chart {
  picture: Picture;
  place: HTMLElement;
  make: (scene: Scene) => CurveChart | null;
  content: CurveChart | null;
}

export class CurvePanels {
  readonly element: HTMLElement;
  private readonly charts: Chart[];
  private readonly decoder: Picture;
  private readonly measure = h("select", { id: "measure", "aria-label": "Measure of attention" });
  private readonly keepButton = h(
    "button",
    { type: "button", id: "keep", class: "chip", "aria-pressed": "false" },
    KEEP,
  );
  private scene: Scene | null = null;

  constructor(private readonly events: CurveEvents) {
    for (const [value, label] of Object.entries(MEASURE_LABELS)) this.measure.append(h("option", { value }, label));
    this.measure.addEventListener("change", () => events.measure(this.measure.value as Measure));
    this.keepButton.addEventListener("click", () => events.keep(this.scene?.kept ? null : this.scene));
    this.decoder = new Picture(
      "Decoder’s logits",
      () => HEIGHT,
      (pen, box) => this.scene && drawDecoder(pen, box, this.scene),
    );
    this.charts = [lossChart, measureChart, growthChart, leadChart].map((make) => this.chart(make));
    const [loss, measured, growth, lead] = this.charts.map((chart) => chart.place);
    this.element = h(
      "section",
      { class: "curves", "aria-label": "Curves" },
      h(
        "div",
        { class: "tools" },
        explain(this.keepButton, "Keeps this run’s curves, in gray, under those of the next run."),
      ),
      h(
        "div",
        { class: "charts" },
        loss,
        h("div", { class: "chart" }, this.measure, measured),
        h("div", { class: "place" }, this.decoder.canvas),
        growth,
        lead,
      ),
    );
  }

  show(scene: Scene): void {
    this.scene = scene;
    for (const chart of this.charts) {
      chart.content = chart.make(scene);
      chart.place.hidden = chart.content === null;
      if (chart.content) chart.picture.draw();
    }
    this.decoder.draw();
    this.measure.value = scene.measure;
    this.measure.title = MEASURE_TIPS[scene.measure];
    const words = scene.kept ? `Kept: ${scene.kept.label} ✕` : KEEP;
    if (this.keepButton.firstChild?.textContent !== words) {
      this.keepButton.firstChild!.textContent = words;
      this.keepButton.setAttribute("aria-pressed", String(scene.kept !== null));
    }
  }

  /** Say in words what the pictures show. */
  describe(scene: Scene): void {
    const { step } = scene.frame;
    const record = scene.history.frames.indexOf(scene.frame);
    for (const { picture, content } of this.charts) {
      if (!content) continue;
      const value = content.curves[content.curves.length - 1].values[record];
      const words = Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "no number";
      picture.describe(`${content.title} over time: ${words} at step ${step}.`);
    }
    this.decoder.describe(`Decoder’s logits of ${scene.rows.length} classes at step ${step}.`);
  }

  private chart(make: Chart["make"]): Chart {
    const picture = new Picture(
      "Curve",
      () => HEIGHT,
      (pen, box) => {
        if (this.scene && chart.content) drawCurves(pen, box, this.scene, chart.content, make !== measureChart);
      },
    );
    picture.onPointer(({ x }) => {
      const plot = plotBox(picture.box);
      const place = (x - plot.x) / plot.width;
      if (this.scene && place >= 0 && place <= 1.02) this.events.lookAt(this.scene.time.at(place));
    });
    const chart: Chart = { picture, place: h("div", { class: "place" }, picture.canvas), make, content: null };
    return chart;
  }
}
