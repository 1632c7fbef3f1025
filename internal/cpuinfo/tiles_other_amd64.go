//go:build !noasm && !linux

package cpuinfo

// permitTiles says no: how a process gets the tile registers is known here for Linux only.
func permitTiles() bool { return false }
