package device

import "fmt"

// PortType is what a switch port leads to.
type PortType uint8

// The types of switch ports.
const (
	PortCore PortType = iota
	PortDMA
	PortCtrl
	PortFIFO
	PortSouth
	PortWest
	PortNorth
	PortEast
	PortTrace
)

var portNames = [...]string{"core", "dma", "ctrl", "fifo", "south", "west", "north", "east", "trace"}

// String names the type.
func (p PortType) String() string {
	if int(p) < len(portNames) {
		return portNames[p]
	}
	return fmt.Sprintf("port(%d)", uint8(p))
}

// PortGroup is a run of ports of one type. The port index is the register offset / 4 from the master or slave base.
type PortGroup struct {
	Type  PortType
	First int
	Count int
}

// Port is one port: its type and its number within the type (DMA: the channel).
type Port struct {
	Type PortType
	Lane int
}

// String prints the port as north0.
func (p Port) String() string { return fmt.Sprintf("%v%d", p.Type, p.Lane) }

func portCount(groups []PortGroup) int {
	last := groups[len(groups)-1]
	return last.First + last.Count
}

// MasterIndex is the register index of a master port (the switch's outputs).
func (t *TileInfo) MasterIndex(p Port) (int, error) { return portIndex(t, t.MasterPorts, p, "master") }

// SlaveIndex is the register index of a slave port (the switch's inputs).
func (t *TileInfo) SlaveIndex(p Port) (int, error) { return portIndex(t, t.SlavePorts, p, "slave") }

func portIndex(t *TileInfo, groups []PortGroup, p Port, side string) (int, error) {
	for _, g := range groups {
		if g.Type == p.Type {
			if p.Lane < 0 || p.Lane >= g.Count {
				return 0, fmt.Errorf("%v switch has %s %v ports 0 to %d, not %d", t.Kind, side, p.Type, g.Count-1, p.Lane)
			}
			return g.First + p.Lane, nil
		}
	}
	return 0, fmt.Errorf("%v switch has no %s port towards %v", t.Kind, side, p.Type)
}

// MasterPort is the master port with a register index.
func (t *TileInfo) MasterPort(i int) (Port, bool) { return portAt(t.MasterPorts, i) }

// SlavePort is the slave port with a register index.
func (t *TileInfo) SlavePort(i int) (Port, bool) { return portAt(t.SlavePorts, i) }

func portAt(groups []PortGroup, i int) (Port, bool) {
	for _, g := range groups {
		if i >= g.First && i < g.First+g.Count {
			return Port{g.Type, i - g.First}, true
		}
	}
	return Port{}, false
}

// CanConnect reports whether the switch of a tile joins a slave to a master. Shim and core switches are full crossbars for the ports used here.
// A MemTile joins DMA to any north or south port and back, passes north and south through on the same lane only, and DMA to DMA on the same channel only.
func (t *TileInfo) CanConnect(slave, master Port) bool {
	if t.Kind != Mem {
		return true
	}
	vertical := func(p Port) bool { return p.Type == PortNorth || p.Type == PortSouth }
	switch {
	case slave.Type == PortDMA && vertical(master), vertical(slave) && master.Type == PortDMA:
		return true
	case vertical(slave) && vertical(master):
		return slave.Type != master.Type && slave.Lane == master.Lane
	case slave.Type == PortDMA && master.Type == PortDMA:
		return slave.Lane == master.Lane
	}
	return false
}

// Facing returns the slave port that a master port of the tile at pos drives in the neighbouring tile. ok is false for ports that lead to no tile:
// DMA, core, control, and ports at the edge of the partition.
func (d *Device) Facing(pos Tile, master Port) (next Tile, slave Port, ok bool) {
	next, slave = pos, master
	switch master.Type {
	case PortNorth:
		next.Row, slave.Type = pos.Row+1, PortSouth
	case PortSouth:
		next.Row, slave.Type = pos.Row-1, PortNorth
	case PortEast:
		next.Col, slave.Type = pos.Col+1, PortWest
	case PortWest:
		next.Col, slave.Type = pos.Col-1, PortEast
	default:
		return Tile{}, Port{}, false
	}
	if next.Row < 0 || next.Row >= d.Rows || next.Col < 0 || next.Col >= d.Cols {
		return Tile{}, Port{}, false
	}
	return next, slave, true
}
