/** A canvas that keeps to the size of its place and to the sharpness of the screen. */
import { h } from "./dom.ts";
import { CanvasPen, type Pen } from "./pen.ts";
import type { Box } from "./scene.ts";

const PICTURES = new WeakMap<Element, Picture>();

/** Pictures that are out of sight are not drawn. */
const inSight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) PICTURES.get(target)?.appear(isIntersecting);
});

export class Picture {
  readonly canvas: HTMLCanvasElement;
  private pen: CanvasPen | null = null;
  private visible = true;
  private width = 0;
  private height = 0;

  /** `tall` gives the height for a width, both in units of the page's text size over 16. */
  constructor(
    label: string,
    private readonly tall: (width: number) => number,
    private readonly drawing: (pen: Pen, box: Box) => void,
    attributes: Record<string, string> = {},
  ) {
    this.canvas = h("canvas", { role: "img", "aria-label": label, ...attributes });
    PICTURES.set(this.canvas, this);
    inSight.observe(this.canvas);
  }

  /** Come into sight, or leave it. */
  appear(visible: boolean): void {
    const drawn = this.visible;
    this.visible = visible;
    if (visible && !drawn) this.draw();
  }

  /** A label that says what the picture shows now. */
  describe(label: string): void {
    if (this.canvas.getAttribute("aria-label") !== label) this.canvas.setAttribute("aria-label", label);
  }

  draw(): void {
    const place = this.canvas.parentElement;
    if (!place || !this.visible || place.clientWidth === 0) return;
    const zoom = textZoom();
    const width = Math.max(160, place.clientWidth / zoom);
    const height = this.tall(width);
    const scale = (globalThis.devicePixelRatio || 1) * zoom;
    const context = this.canvas.getContext("2d");
    if (!context) return;
    if (width !== this.width || height !== this.height || this.canvas.width !== Math.round(width * scale)) {
      [this.width, this.height] = [width, height];
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.width = `${width * zoom}px`;
      this.canvas.style.height = `${height * zoom}px`;
    }
    this.pen ??= new CanvasPen(context);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    this.drawing(this.pen, this.box);
  }

  get box(): Box {
    return { x: 0, y: 0, width: this.width, height: this.height };
  }

  /** Call with the place of a pointer that presses or drags. */
  onPointer(use: (place: { x: number; y: number }) => void): void {
    this.canvas.addEventListener("pointerdown", (event) => use(this.where(event)));
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) use(this.where(event));
    });
  }

  /** Where a pointer is, in the units of the drawing. */
  where(event: PointerEvent | MouseEvent): { x: number; y: number } {
    const place = this.canvas.getBoundingClientRect();
    const zoom = textZoom();
    return { x: (event.clientX - place.left) / zoom, y: (event.clientY - place.top) / zoom };
  }
}

let zoom = 1;

/** Measure the page's text size again: pictures grow with it, up to 4K. */
export function measureText(): void {
  zoom = Number.parseFloat(getComputedStyle(document.documentElement).fontSize) / 16 || 1;
}

function textZoom(): number {
  return zoom;
}
