declare module "*?inline" {
  /** The module, bundled on its own, as text. */
  const code: string;
  export default code;
}
declare module "*.css" {
  const text: string;
  export default text;
}
declare module "*.svg" {
  const text: string;
  export default text;
}
