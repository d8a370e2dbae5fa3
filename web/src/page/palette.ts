/** Colors, read from the style sheet so that pictures follow light and dark.
 *
 * Distinct tokens are blue and solid, common tokens orange and striped: Okabe and Ito's colors, which the color-blind
 * tell apart, and a second sign for those who see none.
 */

export interface Palette {
  ink: string;
  soft: string;
  line: string;
  paper: string;
  wash: string;
  distinct: string;
  common: string;
  theory: string;
  exact: string;
  /** Text on the strongest colors. */
  onHeat: string;
  /** Ramps of 256 RGBA colors from no attention to all of it, by kind. */
  ramps: { distinct: Uint32Array; common: Uint32Array };
  /** The same ramps as colors of the page. */
  shades: { distinct: string[]; common: string[] };
  /** 256 colors from negative over zero to positive. */
  diverging: string[];
}

export function readPalette(root: Element): Palette {
  const style = getComputedStyle(root);
  const color = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const paper = color("heat-low");
  return {
    ink: color("ink"),
    soft: color("soft"),
    line: color("line"),
    paper: color("paper"),
    wash: color("wash"),
    distinct: color("distinct"),
    common: color("common"),
    theory: color("theory"),
    exact: color("exact"),
    onHeat: color("on-heat"),
    ramps: {
      distinct: ramp([paper, color("distinct"), color("distinct-high")]),
      common: ramp([paper, color("common"), color("common-high")]),
    },
    shades: {
      distinct: shades(paper, color("distinct"), color("distinct-high")),
      common: shades(paper, color("common"), color("common-high")),
    },
    diverging: shades(color("common"), paper, color("distinct")),
  };
}

/** #rrggbb as numbers. */
function channels(color: string): [number, number, number] {
  const value = Number.parseInt(color.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

function mixed(colors: string[], share: number): [number, number, number] {
  const place = Math.min(share, 0.999999) * (colors.length - 1);
  const low = channels(colors[Math.floor(place)] as string);
  const high = channels(colors[Math.floor(place) + 1] as string);
  const part = place - Math.floor(place);
  return [0, 1, 2].map((i) => Math.round(low[i] + (high[i] - low[i]) * part)) as [number, number, number];
}

function ramp(colors: string[]): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const [red, green, blue] = mixed(colors, i / 255);
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0; // little-endian RGBA
  });
}

/** 256 colors through three. */
function shades(low: string, middle: string, high: string): string[] {
  return Array.from({ length: 256 }, (_, i) => {
    const [red, green, blue] = mixed([low, middle, high], i / 255);
    return `rgb(${red},${green},${blue})`;
  });
}
