// Package conv decides what convolutions and poolings over one to three spatial dimensions are: Conv, Transposed, Pool.
//
// Images are [N, C, spatial...] (ChannelsFirst) or [N, spatial..., C] (ChannelsLast); filters are always [out channels,
// in channels / groups, spatial...], those of Transposed [in channels, out channels / groups, spatial...]. Padding is given, per
// side; rules such as "same" are resolved by whoever builds the graph (see Window.Same).
package conv
