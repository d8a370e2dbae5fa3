/**
 * The library's random numbers (`data/random_stream.py`), bit for bit, in 32-bit arithmetic.
 *
 * Sequence `index` of update `step` with seed `seed` owns a stream of 64-bit words; word j is
 *
 *     mix(key + (j + 1) GOLDEN),    key = mix(mix(mix(seed + GOLDEN) + (step + 1) GOLDEN) + (index + 1) GOLDEN)
 *
 * with SplitMix64's finalizer for `mix`, all modulo 2^64.  A word is a pair of 32-bit halves.
 */

const GOLDEN_HIGH = 0x9e3779b9;
const GOLDEN_LOW = 0x7f4a7c15;

/** The high half of the 64-bit product of two 32-bit words, from products of their 16-bit halves. */
function highProduct(a: number, b: number): number {
  const aLow = a & 0xffff, aHigh = a >>> 16, bLow = b & 0xffff, bHigh = b >>> 16;
  const low = Math.imul(aLow, bLow) >>> 0;
  const middle = ((Math.imul(aHigh, bLow) >>> 0) + (low >>> 16)) >>> 0; // at most (2^16 - 1)^2 + 2^16 - 1 < 2^32
  const other = ((Math.imul(aLow, bHigh) >>> 0) + (middle & 0xffff)) >>> 0;
  return (Math.imul(aHigh, bHigh) + (middle >>> 16) + (other >>> 16)) | 0;
}

/** The stream of one sequence, at one of its words. */
export class Stream {
  /** The halves of the word last asked for, as signed 32-bit integers. */
  high = 0;
  low = 0;
  #keyHigh = 0;
  #keyLow = 0;

  /** Turn to the stream of a sequence; steps -1 and -2 are those of the start. */
  of(seed: number, step: number, index: number): this {
    this.#mix(0, 0, seed, 1);
    this.#mixNumber(step);
    this.#mixNumber(index);
    this.#keyHigh = this.high;
    this.#keyLow = this.low;
    return this;
  }

  /** Go to word j. */
  word(j: number): void {
    this.high = this.#keyHigh;
    this.low = this.#keyLow;
    this.#mixNumber(j);
  }

  /** Word j as a number strictly between 0 and 1, with 53 bits. */
  uniform(j: number): number {
    this.word(j);
    return ((this.high >>> 0) * 2 ** 21 + (this.low >>> 11) + 0.5) * 2 ** -53;
  }

  /** mix(this word + (number + 1) GOLDEN), for whole numbers from -2 to 2^53 - 2. */
  #mixNumber(number: number): void {
    this.#mix(this.high, this.low, 0, number + 1);
  }

  /** mix(high, low + offset + times GOLDEN). */
  #mix(high: number, low: number, offset: number, times: number): void {
    const timesLow = times | 0, timesHigh = Math.floor(times / 2 ** 32) | 0;
    let addLow = Math.imul(GOLDEN_LOW, timesLow);
    let addHigh = (highProduct(GOLDEN_LOW, timesLow) + Math.imul(GOLDEN_HIGH, timesLow)
      + Math.imul(GOLDEN_LOW, timesHigh)) | 0;
    if (offset !== 0) {
      const offsetLow = offset | 0;
      addHigh = (addHigh + (Math.floor(offset / 2 ** 32) | 0) + carry(addLow, offsetLow)) | 0;
      addLow = (addLow + offsetLow) | 0;
    }
    let h = (high + addHigh + carry(low, addLow)) | 0;
    let l = (low + addLow) | 0;
    // x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
    l ^= (l >>> 30) | (h << 2);
    h ^= h >>> 30;
    h = (highProduct(l, 0x1ce4e5b9) + Math.imul(h, 0x1ce4e5b9) + Math.imul(l, 0xbf58476d)) | 0;
    l = Math.imul(l, 0x1ce4e5b9);
    // x = (x ^ (x >> 27)) * 0x94d049bb133111eb
    l ^= (l >>> 27) | (h << 5);
    h ^= h >>> 27;
    h = (highProduct(l, 0x133111eb) + Math.imul(h, 0x133111eb) + Math.imul(l, 0x94d049bb)) | 0;
    l = Math.imul(l, 0x133111eb);
    // x ^ (x >> 31)
    this.low = l ^ ((l >>> 31) | (h << 1));
    this.high = h ^ (h >>> 31);
  }
}

/** The carry out of the sum of two 32-bit words. */
function carry(a: number, b: number): number {
  return (a >>> 0) + (b >>> 0) > 0xffffffff ? 1 : 0;
}
