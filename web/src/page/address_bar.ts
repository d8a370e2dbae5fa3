/** The address of the page: read when it opens and when someone changes it, written when the experiment changes. */

const WAIT_MS = 250;
const MOST_WRITTEN = 1_000_000;

/** What the page was given in its head, when it was written to a file or shown inside another page. */
export function inHead(name: "address" | "view"): string {
  return document.querySelector<HTMLMetaElement>(`meta[name="scansnap-${name}"]`)?.content ?? "";
}

export class AddressBar {
  /** Whether the page was opened without an address of someone's own. */
  readonly fresh = location.hash.length <= 1;
  private written = "";
  private waiting: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly address: () => string,
    changed: (address: string) => void,
  ) {
    addEventListener("hashchange", () => {
      if (location.hash !== this.written) changed(location.hash);
    });
  }

  get first(): string {
    return this.fresh ? inHead("address") : location.hash;
  }

  get link(): string {
    return location.href.split("#")[0] + this.address();
  }

  /** Write the address a little later, so that dragging does not write a hundred of them. */
  writeLater(): void {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      this.written = this.address();
      if (parent !== window) parent.postMessage({ scansnapAddress: this.written }, "*"); // a notebook listens
      try {
        if (this.written.length < MOST_WRITTEN) history.replaceState(null, "", this.written);
      } catch {
        // a page inside another one may not own its address
      }
    }, WAIT_MS);
  }
}
