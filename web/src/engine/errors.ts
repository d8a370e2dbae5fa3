/** A mistake in what a person gave: one sentence that says what was given, what is allowed and what to do. */
export class InputError extends Error {
  override name = "InputError";
}
