// Package shape decides the operations that move elements without computing: views (Reshape, Permute, Slice, Broadcast, Squeeze,
// Unsqueeze), copies (Contiguous, Concat, Split, Pad, Tile), and selection of rows and elements by index (Gather, GetRows,
// SetRows). Sizes may be symbols (ops.Size) where a model's number of tokens enters.
package shape
