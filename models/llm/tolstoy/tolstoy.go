// Package tolstoy holds the language model that the command answers with when none is named: llama architecture, 3 million
// parameters, a vocabulary of 1,024 byte-level tokens, context 256, trained for this project on a public-domain translation of
// War and Peace. The file is the project's f32 model in Q8_0, written by the project's own quantizer.
package tolstoy

import _ "embed"

// The f32 file lies in the folder of shared data, which is not part of the project.
//
//go:generate go run ../../../cmd/tessera quantize --type q8_0 ../../../../shared/data/models/tolstoy-3m.gguf tolstoy-3m.q8_0.gguf

//go:embed tolstoy-3m.q8_0.gguf
var file []byte

// GGUF returns the model's file. It must not be changed.
func GGUF() []byte { return file }
