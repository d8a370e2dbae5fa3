/** The classes that are shown, each with its heading and its picture, and a pager where there are many. */
import { HeatMap, attentionHeight, columnsOf, drawAttention } from "./attention_picture.ts";
import { fill, h } from "./dom.ts";
import { type ClassRows, winner } from "./history.ts";
import { Picture } from "./picture.ts";
import type { Scene } from "./scene.ts";

/** With more classes than this they are shown a few at a time. */
const MOST_AT_ONCE = 4;

interface Panel {
  rows: ClassRows;
  picture: Picture;
  leader: HTMLElement;
  title: HTMLElement;
}

export interface PanelEvents {
  scene(): Scene | null;
  scale(): number;
  focus(index: number): void;
  /** Look at the step at this place of the time axis, or at the present one. */
  look(step: number): void;
}

export class ClassPanels {
  readonly element = h("section", { class: "classes", "aria-label": "Attention of each class" });
  private readonly grid = h("div", { class: "panels" });
  private readonly pager = h("nav", { class: "pager", "aria-label": "Classes" });
  private panels: Panel[] = [];
  private key = "";
  private all = false;

  constructor(private readonly events: PanelEvents) {
    this.element.append(this.pager, this.grid);
  }

  /** Indices of the classes on the page. */
  shown(count: number, focus: number): number[] {
    if (this.all || count <= MOST_AT_ONCE) return Array.from({ length: count }, (_, i) => i);
    const each = this.perPage;
    const first = Math.floor(focus / each) * each;
    return Array.from({ length: Math.min(each, count - first) }, (_, i) => first + i);
  }

  /** As many as stand side by side, so that the curves below stay in view. */
  private get perPage(): number {
    return innerWidth >= 2300 ? MOST_AT_ONCE : 2;
  }

  show(scene: Scene): void {
    const shown = this.shown(scene.rows.length, scene.focus);
    const key = `${shown.join()}|${scene.rows.length}|${this.all}`;
    if (key !== this.key || this.panels[0]?.rows !== scene.rows[shown[0]]) this.build(scene, shown, key);
    const width = scene.classes.tokens.length;
    for (const panel of this.panels) {
      panel.picture.draw();
      panel.title.setAttribute("aria-pressed", String(panel.rows.index === scene.focus));
      const leader = winner(panel.rows, scene.frame.attention, width);
      const predicted =
        leader && scene.forms !== "none" && scene.theory?.predictedWinner[panel.rows.index] === leader.row.token;
      const words = leader
        ? `most: ${leader.row.name}, ${Math.round(leader.share * 100)}%${predicted ? " ★ as predicted" : ""}`
        : "";
      if (panel.leader.textContent !== words) panel.leader.textContent = words;
    }
  }

  /** Say in words what the pictures show, for those who do not see them; not at every frame. */
  describe(scene: Scene): void {
    const width = scene.classes.tokens.length;
    for (const { rows, picture } of this.panels) {
      const leader = winner(rows, scene.frame.attention, width);
      const common = rows.rows
        .filter((row) => row.kind === "common")
        .reduce((sum, row) => sum + scene.frame.attention[rows.index * width + row.token], 0);
      picture.describe(
        `Attention of class ${rows.index + 1} at step ${scene.frame.step}: ` +
          `${leader ? `most on ${leader.row.kind} token ${leader.row.name}, ${Math.round(leader.share * 100)} percent; ` : ""}common tokens together ${Math.round(common * 100)} percent.`,
      );
    }
  }

  private build(scene: Scene, shown: number[], key: string): void {
    this.key = key;
    this.panels = shown.map((index) => this.panel(scene.rows[index]));
    fill(
      this.grid,
      ...this.panels.map(({ rows, picture, leader, title }) =>
        h(
          "article",
          { class: "panel" },
          h("header", {}, h("h2", {}, title), leader),
          h("div", { class: "place" }, picture.canvas),
          rows.hidden > 0 && h("p", { class: "soft" }, `and ${rows.hidden} rarer tokens that are not drawn`),
        ),
      ),
    );
    this.grid.dataset.count = this.all ? "all" : String(shown.length);
    this.paginate(scene.rows.length, shown);
  }

  private panel(rows: ClassRows): Panel {
    const heat = new HeatMap();
    const picture = new Picture(
      `Attention of class ${rows.index + 1}`,
      (width) => attentionHeight(rows, width),
      (pen, box) => {
        const scene = this.events.scene();
        if (scene) drawAttention(pen, box, scene, rows, heat, this.events.scale());
      },
    );
    picture.onPointer(({ x }) => {
      const scene = this.events.scene();
      const { past } = columnsOf(picture.box);
      const place = (x - past.x) / past.width;
      if (scene && place >= 0 && place <= 1.02) this.events.look(scene.time.at(place));
    });
    const title = h(
      "button",
      { type: "button", class: "class-title", "aria-pressed": "false", onclick: () => this.events.focus(rows.index) },
      h("span", { class: "class-name" }, `Class ${rows.index + 1}`),
      h("span", { class: "soft" }, ` query ${rows.query} → next ${rows.next}`),
    );
    return { rows, picture, leader: h("span", { class: "leader" }), title };
  }

  private paginate(count: number, shown: number[]): void {
    const each = this.perPage;
    this.pager.hidden = count <= MOST_AT_ONCE;
    if (this.pager.hidden) return;
    const first = shown[0];
    const last = shown[shown.length - 1];
    const move = (to: number) => () => {
      this.all = false;
      this.events.focus(Math.max(0, Math.min(count - 1, to)));
    };
    fill(
      this.pager,
      h(
        "button",
        {
          type: "button",
          disabled: this.all || first === 0,
          "aria-label": "Earlier classes",
          onclick: move(first - each),
        },
        "‹",
      ),
      h("span", {}, this.all ? `all ${count} classes` : `classes ${first + 1} to ${last + 1} of ${count}`),
      h(
        "button",
        {
          type: "button",
          disabled: this.all || last === count - 1,
          "aria-label": "Later classes",
          onclick: move(first + each),
        },
        "›",
      ),
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(this.all),
          onclick: () => {
            this.all = !this.all;
            this.events.focus(first);
          },
        },
        "all",
      ),
    );
  }
}
