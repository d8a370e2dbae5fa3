/** The clock of a run: it asks the worker for steps and never waits for them.
 *
 * At every animation frame the player asks for as many steps as the speed wants, unless the last request is still being
 * worked on.  It asks for no more than the worker does in about two frames, so that pictures keep moving.
 */
import type { Frame, Phase, Reply, Request, Setting } from "../engine/index.ts";
import workerCode from "../engine/worker?inline";

/** A worker from the page's own text, so that it needs no file; notebooks that allow no blobs allow such an address. */
export function engineWorker(): Worker {
  return new Worker(`data:text/javascript;charset=utf-8,${encodeURIComponent(workerCode)}`);
}

export interface PlayerEvents {
  /** States that came in, the last of them being the present one. */
  frames(frames: Frame[], phase: Phase): void;
  /** Playing began, ended or reached its end. */
  changed(): void;
  failed(message: string): void;
}

/** Updates per second at each setting of the speed control. */
export const SPEEDS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 20_000, 100_000] as const;
const USUAL_SECONDS = 8;
const USUAL_LOG_SPEED = 5;

/** The speed at which a run of so many steps takes some seconds. */
export function usualSpeed(steps: number, logTime: boolean): number {
  if (logTime) return USUAL_LOG_SPEED;
  const wanted = steps / USUAL_SECONDS;
  const far = SPEEDS.map((speed) => Math.abs(Math.log(speed / wanted)));
  return far.indexOf(Math.min(...far));
}

const FRAME_MS = 1000 / 60;
const REQUEST_MS = 30;

export class Player {
  playing = false;
  step = 0;
  /** Playing stops here. */
  end = 100;
  speed = 0;
  /** In logarithmic time the speed grows with the step. */
  logTime = false;
  /** Steps at which no request goes past, because the page has something to do there. */
  breaks: number[] = [];

  private worker: Worker;
  private loads = 0;
  private busySince: number | null = null;
  private asked = 0;
  private owed = 0;
  private msPerStep = 0.05;
  private lastTick = 0;
  /** Steps that a link wants to be made at once. */
  private target = 0;

  constructor(private readonly events: PlayerEvents) {
    this.worker = this.hired();
  }

  load(setting: Setting): void {
    this.loads++;
    this.step = 0;
    this.target = 0;
    this.owed = 0;
    this.breaks = [];
    if (this.busySince !== null && performance.now() - this.busySince > 300) {
      this.worker.terminate(); // it is lost in a long request for a run that nobody wants any more
      this.worker = this.hired();
      this.loads = 1;
    }
    this.send({ type: "load", setting });
    this.asked = 0;
    this.busySince = performance.now();
  }

  play(): void {
    this.playing = true;
    this.lastTick = 0;
    this.events.changed();
    requestAnimationFrame(this.tick);
  }

  pause(): void {
    this.playing = false;
    this.target = 0;
    this.events.changed();
  }

  /** Make steps as fast as possible up to this one. */
  runTo(step: number): void {
    this.target = step;
    requestAnimationFrame(this.tick);
  }

  stepOnce(): void {
    if (this.busySince === null) this.request(1);
    else this.runTo(this.step + 1);
  }

  /** Change options and go on; gives back the step from which on they hold: steps that are under way come first. */
  change(part: Partial<Setting>): number {
    this.send({ type: "change", part });
    return this.step + (this.busySince === null ? 0 : this.asked);
  }

  /** Whether no update has been made or asked for. */
  get atStart(): boolean {
    return this.step === 0 && (this.busySince === null || this.asked === 0);
  }

  private readonly tick = (now: number): void => {
    const hurried = this.target > this.step;
    if (!this.playing && !hurried) return;
    requestAnimationFrame(this.tick);
    const elapsed = this.lastTick ? Math.min(now - this.lastTick, 100) : FRAME_MS;
    this.lastTick = now;
    if (!hurried) {
      const perSecond = SPEEDS[this.speed] + (this.logTime ? this.step * 0.15 * (this.speed + 1) : 0);
      this.owed = Math.min(this.owed + (perSecond * elapsed) / 1000, perSecond);
    }
    if (this.busySince !== null) return;
    const affordable = Math.max(1, Math.floor(REQUEST_MS / this.msPerStep));
    const stop = Math.min(hurried ? this.target : this.end, ...this.breaks.filter((step) => step > this.step));
    const steps = Math.min(hurried ? affordable : Math.floor(this.owed), affordable, stop - this.step);
    if (steps > 0) this.request(steps);
  };

  private request(steps: number): void {
    this.owed = Math.max(0, this.owed - steps);
    this.asked = steps;
    this.busySince = performance.now();
    this.send({ type: "step", steps });
  }

  private hired(): Worker {
    const worker = engineWorker();
    worker.onmessage = ({ data }: MessageEvent<Reply>) => this.receive(data);
    worker.onerror = (event) => this.events.failed(event.message || "the engine stopped");
    return worker;
  }

  private receive(reply: Reply): void {
    if (reply.type === "error") {
      this.busySince = null;
      this.pause();
      this.events.failed(reply.message);
    }
    if (reply.type !== "frames") return;
    if (reply.run !== this.loads) return;
    if (this.asked > 0) this.msPerStep = Math.max(1e-4, 0.7 * this.msPerStep + (0.3 * reply.ms) / this.asked);
    this.busySince = null;
    this.step = reply.now.step;
    const { frames, now } = reply;
    if (frames[frames.length - 1]?.step !== now.step) frames.push(now);
    this.events.frames(frames, reply.phase);
    if (reply.stopped !== null || (this.playing && this.step >= this.end)) this.pause();
  }

  private send(request: Request): void {
    this.worker.postMessage(request);
  }
}
