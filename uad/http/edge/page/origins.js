// Who wrote which characters. The stream's `origins` has the tokens of all text, markers of thoughts included, before
// stop strings are cut off; what an answer shows is taken out of it in order.

/** The kind of a name of --spec-type: what it is coloured as. uad/base/console.py has the same rule. */
export function kindOf(by) {
  if (by === "target" || by === "grammar") return by;
  if (by.startsWith("draft-simple-")) return "beside"; // the second draft model, and so on
  return by.startsWith("draft-") ? "model" : "text";
}

export const WORDS = {
  model: "draft model",
  beside: "draft model beside it",
  text: "look-up",
  grammar: "grammar",
  target: "target",
};

/** A text whose stretches know their origin. `runs`: {end, by, n}, neighbours differ; `rejected`: {at, text}. */
export class Coloured {
  /** From what toJSON gave; or from runs as they are here. */
  constructor({ text = "", names, runs = [], rejected = [] } = {}) {
    this.text = text;
    this.runs = names ? unpacked(names, runs) : runs;
    this.rejected = rejected;
  }

  /** As it is kept: runs in a row as length, number of a name, tokens. Those are a tenth of what objects take. */
  toJSON() {
    const names = [...new Set(this.runs.map((run) => run.by))];
    const runs = this.runs.flatMap(({ end, by, n }, i) => [end - (this.runs[i - 1]?.end ?? 0), names.indexOf(by), n]);
    return { text: this.text, names, runs, rejected: this.rejected };
  }

  add(text, by, n) {
    if (!text) return;
    this.text += text;
    const last = this.runs.at(-1);
    if (last && last.by === by) {
      last.end = this.text.length;
      last.n += n;
    } else {
      this.runs.push({ end: this.text.length, by, n });
    }
  }

  reject(text) {
    this.rejected.push({ at: this.text.length, text });
  }

  /** Index of the run in which a place lies. */
  runAt(place) {
    let low = 0;
    for (let high = this.runs.length; low < high;) {
      const middle = (low + high) >> 1;
      if (this.runs[middle].end > place) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

function unpacked(names, numbers) {
  const runs = [];
  for (let i = 0, end = 0; i < numbers.length; i += 3) {
    end += numbers[i];
    runs.push({ end, by: names[numbers[i + 1]], n: numbers[i + 2] });
  }
  return runs;
}

/** Takes tokens in, and gives the text of an answer back with its origins. */
export class OriginQueue {
  #tokens = []; // {text, by, rejected} that are not wholly used
  #next = 0;
  #used = 0; // code units of the first token
  #at = 0; // code points up to it

  hear(tokens) {
    this.#tokens = this.#tokens.slice(this.#next);
    this.#next = 0;
    this.#tokens.push(...tokens);
  }

  /** Put a text that the answer shows into `out`. at: where it begins in the text of all tokens, in code points. */
  take(text, out, at = undefined) {
    if (at !== undefined) this.#skip(at);
    let left = text;
    while (left && this.#next < this.#tokens.length) {
      const token = this.#tokens[this.#next];
      if (!this.#used && token.rejected) out.reject(token.rejected);
      const piece = token.text.slice(this.#used, this.#used + left.length);
      if (!left.startsWith(piece)) break; // not the text of the tokens: shown without colours
      out.add(piece, token.by, this.#used ? 0 : 1);
      left = left.slice(piece.length);
      this.#step(piece);
    }
    out.add(left, "target", 0);
  }

  #skip(at) {
    while (this.#at < at && this.#next < this.#tokens.length) {
      const rest = [...this.#tokens[this.#next].text.slice(this.#used)];
      this.#step(rest.slice(0, at - this.#at).join(""));
    }
  }

  #step(piece) {
    const token = this.#tokens[this.#next];
    this.#used += piece.length;
    this.#at += [...piece].length;
    if (this.#used >= token.text.length) {
      this.#next += 1;
      this.#used = 0;
    }
  }
}
