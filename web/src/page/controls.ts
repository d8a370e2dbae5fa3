/** Controls of options: each is built from its entry in `OPTIONS` and shows the value that the state has. */
import { h, withSubscripts } from "./dom.ts";
import { OPTION, type OptionKey, type OptionSpec, type Options, readOption } from "./options.ts";
import { explain } from "./tooltip.ts";

export interface Control {
  element: HTMLElement;
  show(options: Options): void;
}

type Change = (part: Partial<Options>) => void;
type Refuse = (sentence: string) => void;

/** The control of one option. */
export function control(key: OptionKey, change: Change, refuse: Refuse): Control {
  const spec = OPTION[key];
  if (spec.kind === "rate")
    return rate(
      spec,
      (value) => change({ [key]: value }),
      refuse,
      (options) => options[key] as number,
    );
  if (spec.kind === "choice") return choice(spec, change);
  if (spec.kind === "switch") return toggle(spec, change);
  return whole(spec, change, refuse);
}

/** The ratio of the rates; it moves the decoder's. */
export function ratioControl(change: Change, refuse: Refuse): Control {
  const spec: OptionSpec = {
    key: "lrY",
    name: "lr_y_over_lr_z",
    label: "Ratio η_Y / η_Z",
    kind: "rate",
    least: 0,
    most: 1e6,
    slider: [0.01, 1000],
    tip: "How much faster the decoder learns than attention. Moving it changes the decoder rate only.",
  };
  let attentionRate = 1;
  const setting = rate(
    spec,
    (ratio) => change({ lrY: Math.min(OPTION.lrY.most!, Number((ratio * attentionRate).toPrecision(6))) }),
    refuse,
    (options) => {
      attentionRate = options.lrZ || 1;
      return options.lrZ > 0 ? options.lrY / options.lrZ : Number.NaN;
    },
  );
  return setting;
}

function rate(
  spec: OptionSpec,
  change: (value: number) => void,
  refuse: Refuse,
  read: (options: Options) => number,
): Control {
  const [least, most] = spec.slider ?? [0.001, 100];
  const slider = h("input", {
    type: "range",
    id: `range-${spec.name}`,
    min: Math.log10(least),
    max: Math.log10(most),
    step: 0.05,
    "aria-label": `${spec.label}, slider`,
  });
  const field = h("input", {
    type: "text",
    inputmode: "decimal",
    id: `option-${spec.name}`,
    class: "number",
    autocomplete: "off",
  });
  const label = h("label", { for: field.id }, ...withSubscripts(spec.label));
  slider.addEventListener("input", () => {
    const value = Number((10 ** Number(slider.value)).toPrecision(2));
    field.value = String(value);
    slider.setAttribute("aria-valuetext", String(value));
    change(value);
  });
  field.addEventListener("change", () => accept(spec, field, refuse, (value) => change(value as number)));
  return {
    element: explain(h("div", { class: "control rate" }, label, field, slider), spec.tip, field),
    show(options) {
      const value = read(options);
      if (document.activeElement !== field)
        field.value = Number.isFinite(value) ? String(Number(value.toPrecision(4))) : "–";
      if (document.activeElement !== slider) slider.value = String(Math.log10(Math.max(value, 1e-9)));
      slider.setAttribute("aria-valuetext", field.value);
    },
  };
}

function choice(spec: OptionSpec, change: Change): Control {
  const select = h(
    "select",
    { id: `option-${spec.name}` },
    ...(spec.choices ?? []).map(([value, label]) => h("option", { value }, label)),
  );
  select.addEventListener("change", () => change({ [spec.key]: select.value }));
  return {
    element: explain(
      h("div", { class: "control" }, h("label", { for: select.id }, ...withSubscripts(spec.label)), select),
      spec.tip,
      select,
    ),
    show(options) {
      select.value = String(options[spec.key]);
    },
  };
}

function toggle(spec: OptionSpec, change: Change): Control {
  const box = h("input", { type: "checkbox", id: `option-${spec.name}` });
  box.addEventListener("change", () => change({ [spec.key]: box.checked }));
  return {
    element: explain(
      h("div", { class: "control switch" }, h("label", { for: box.id }, ...withSubscripts(spec.label)), box),
      spec.tip,
      box,
    ),
    show(options) {
      box.checked = Boolean(options[spec.key]);
    },
  };
}

function whole(spec: OptionSpec, change: Change, refuse: Refuse): Control {
  const field = h("input", {
    type: "text",
    inputmode: "decimal",
    id: `option-${spec.name}`,
    class: "number",
    autocomplete: "off",
  });
  field.addEventListener("change", () => accept(spec, field, refuse, (value) => change({ [spec.key]: value })));
  const parts: HTMLElement[] = [field];
  const none = spec.none === undefined ? null : h("input", { type: "checkbox", id: `none-${spec.name}` });
  if (none) {
    none.addEventListener("change", () => change({ [spec.key]: none.checked ? null : spec.some }));
    parts.push(h("label", { class: "none", for: none.id }, none, ` ${spec.none}`));
  }
  return {
    element: explain(
      h("div", { class: "control" }, h("label", { for: field.id }, ...withSubscripts(spec.label)), h("span", { class: "pair" }, ...parts)),
      spec.tip,
      field,
    ),
    show(options) {
      const value = options[spec.key];
      if (none) none.checked = value === null;
      field.disabled = value === null || (spec.key === "momentum" && options.optimizer !== "sgd");
      if (document.activeElement !== field) field.value = value === null ? "" : String(value);
    },
  };
}

/** Take what was typed, or say what is wrong with it and leave the field marked. */
function accept(
  spec: OptionSpec,
  field: HTMLInputElement,
  refuse: Refuse,
  use: (value: ReturnType<typeof readOption>) => void,
): void {
  try {
    const value = readOption(spec, field.value.trim());
    field.removeAttribute("aria-invalid");
    use(value);
  } catch (error) {
    field.setAttribute("aria-invalid", "true");
    refuse((error as Error).message);
  }
}
