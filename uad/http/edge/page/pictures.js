// Pictures that go with the next message: chosen, dropped or pasted, and shown above the composer. A large one is made
// smaller, since conversations are kept in this browser, which has a few megabytes for all of them.

import { $, announce, h } from "./dom.js";

const KINDS = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const LARGE = 256 * 1024; // bytes: what has more is drawn again
const SIDE = 1536; // pixels

let waiting = []; // data URLs
let sees = false;

/** changed() is called where pictures came or went. */
export function start(changed) {
  $("attach").addEventListener("click", () => $("pick").click());
  $("pick").addEventListener("change", () => {
    take($("pick").files, changed);
    $("pick").value = "";
  });
  $("say").addEventListener("paste", (event) => {
    if (!sees || !picturesIn(event.clipboardData.files).length) return;
    event.preventDefault();
    take(event.clipboardData.files, changed);
  });
  for (const kind of ["dragover", "drop"])
    $("chat").addEventListener(kind, (event) => {
      if (!sees || !event.dataTransfer.types.includes("Files")) return;
      event.preventDefault(); // else the browser would show the file in place of the page
      if (kind === "drop") take(event.dataTransfer.files, changed);
    });
}

/** Whether the server's model sees pictures. */
export function allow(is) {
  sees = is;
  $("attach").hidden = !is;
}

export const areThere = () => waiting.length > 0;

/** The pictures of a message that is sent now. */
export function taken() {
  const those = waiting;
  waiting = [];
  draw();
  return those;
}

/** Pictures as a message shows them. */
export const shown = (urls) =>
  h("p", { class: "pictures" }, ...urls.map((url, i) => h("img", { src: url, alt: `Picture ${i + 1}` })));

/** A message's content as the API has it. */
export const contentOf = ({ text, images }) =>
  images?.length
    ? [
        ...images.map((url) => ({ type: "image_url", image_url: { url } })),
        ...(text ? [{ type: "text", text }] : []),
      ]
    : text;

const picturesIn = (files) => [...files].filter((file) => KINDS.includes(file.type));

async function take(files, changed) {
  const fit = picturesIn(files);
  if (fit.length < files.length) announce("Pictures are PNG, JPEG, WebP or GIF files.");
  for (const file of fit) {
    try {
      waiting.push(await urlOf(file));
    } catch {
      announce(`${file.name} cannot be read as a picture.`);
    }
  }
  draw(changed);
  changed();
}

function draw(changed = () => {}) {
  const remove = (url) => {
    waiting = waiting.filter((one) => one !== url);
    draw(changed);
    changed();
  };
  const item = (url, i) =>
    h(
      "li",
      {},
      h("img", { src: url, alt: `Picture ${i + 1}` }),
      h(
        "button",
        { type: "button", class: "quiet", "aria-label": `Remove picture ${i + 1}`, onclick: () => remove(url) },
        "×",
      ),
    );
  $("waiting").replaceChildren(...waiting.map(item));
  $("waiting").hidden = !waiting.length;
}

/** The file as a data URL, smaller where it is large. Throws where it is no picture. */
async function urlOf(file) {
  const bitmap = await createImageBitmap(file);
  if (file.size <= LARGE) return read(file);
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = h("canvas", { width: Math.ceil(bitmap.width * scale), height: Math.ceil(bitmap.height * scale) });
  const pen = canvas.getContext("2d");
  pen.fillStyle = "white"; // as the server has it: JPEG knows no transparency
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return read(await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.9)));
}

const read = (blob) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
