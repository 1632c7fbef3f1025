// Package conv computes convolutions and poolings of images with the channels innermost, without ever writing a matrix of patches.
//
// A convolution is a product whose rows are output pixels. In such an image the taps of one kernel row lie behind each other, and
// neighbouring pixels are a constant distance apart: so a kernel reads its operand A right from the image, segment by segment, and
// sums over all of K in registers (tile). Padding is taken out of the way by copying the few rows that a block of output needs, with
// their borders, into scratch memory that stays in L2; a convolution without padding reads the image itself, and a 1x1 one is a
// plain product. Where strides, dilations or padding are so long that taps read little of those rows, only the pixels that they read are
// copied, and where words are multiplied, what each result of a strided convolution, or of one of short rows, reads. Filters are packed once, as panels
// of NR output channels. Bias, residual and activation are applied in registers, where bytes are made of results, too.
//
// A 3x3 convolution of stride 1 with enough channels, and one along lines of 3 or 5 taps, goes by Winograd's algorithm instead (winograd):
// two to three times as fast, with sums about twice as far from the truth at tiles of 4, nearer to it at tiles of 2. An infinity or a NaN in the image reaches the whole tile.
// So do values above about 1e37, whose transforms overflow where the sums of their products would not; the option conv=direct of the
// cpu backend computes such images by the definition.
// Of images of bytes a 3x3 one goes by the algorithm in integers where kernels multiply pairs of words, with the same sums as by the definition.
//
// A depthwise convolution and a pooling vectorize over channels instead (strip); their borders drop taps, and nothing is copied.
//
// A transposed convolution is, for each phase of its stride that has taps, a convolution of its own whose pixels lie a stride apart; pixels of the
// other phases take bias and residual only.
//
// A third spatial dimension (Depth) is one of planes: a block of output rows of one plane takes the rows of all planes that it needs along, and Winograd's
// algorithm takes the planes of a tile like channels. Where a dimension says nothing of its own, it is folded into its neighbours first.
package conv

//go:generate go run -C _gen . -o ..
