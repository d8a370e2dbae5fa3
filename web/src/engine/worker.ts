/** The engine in a worker: see `protocol.ts`. */
export {};
