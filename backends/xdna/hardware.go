package xdna

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/xdna/amdxdna"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// Hardware is the executor for a chip behind the Linux driver. Its configuration is the image of an xclbin, built by other tools for the design that a
// manifest describes; only streams of that design run on it.
type Hardware struct {
	dev      *amdxdna.Device
	xclbin   *amdxdna.Xclbin
	manifest *amdxdna.Manifest
	session  *amdxdna.Session
	bufs     []*amdxdna.BO
}

// NewHardware returns an executor that owns dev.
func NewHardware(dev *amdxdna.Device, x *amdxdna.Xclbin, m *amdxdna.Manifest) *Hardware {
	return &Hardware{dev: dev, xclbin: x, manifest: m}
}

// openHardware opens the device, xclbin and manifest that the options name, and puts the manifest's design in place of the default one. Where there is no
// device, that is the mistake to tell first.
func openHardware(dev *device.Device, node, xclbin, manifest string, opt *Options) (*Hardware, error) {
	if xclbin == "" || manifest == "" {
		return nil, errors.New("device: options xclbin and manifest are needed with it (a configuration cannot be built here; see the package amdxdna)")
	}
	chip, err := amdxdna.Open(node)
	if err != nil {
		return nil, err
	}
	h, d, err := configure(dev, chip, xclbin, manifest)
	if err == nil && chip.Info().Device != dev.Name {
		err = fmt.Errorf("%s is an %s, not an %s", node, chip.Info().Device, dev.Name)
	}
	if err != nil {
		return nil, errors.Join(err, chip.Close())
	}
	opt.Designs = map[device.Types]*design.Design{d.Types: d}
	opt.Rounding = d.Rounding
	return h, nil
}

// configure reads what a chip is to run, and the design that it was built for.
func configure(dev *device.Device, chip *amdxdna.Device, xclbin, manifest string) (*Hardware, *design.Design, error) {
	f, err := os.Open(manifest)
	if err != nil {
		return nil, nil, err
	}
	m, err := amdxdna.ReadManifest(f)
	_ = f.Close()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", manifest, err)
	}
	d, err := manifestDesign(dev, m)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", manifest, err)
	}
	raw, err := os.ReadFile(xclbin)
	if err != nil {
		return nil, nil, err
	}
	x, err := amdxdna.ParseXclbin(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", xclbin, err)
	}
	return NewHardware(chip, x, m), d, nil
}

// manifestDesign is the design that a manifest describes.
func manifestDesign(dev *device.Device, m *amdxdna.Manifest) (*design.Design, error) {
	types, err := device.ParseTypes(m.Types)
	if err != nil {
		return nil, err
	}
	layout, err := design.ParseLayout(m.BLayout)
	if err != nil {
		return nil, err
	}
	if types.B == kernel.BFP16 {
		layout = design.Tiled
	}
	d := &design.Design{
		Dev: dev, Types: types, Tile: design.Tile{M: m.Tile.M, K: m.Tile.K, N: m.Tile.N}, KMT: m.KMT, BLayout: layout,
		Bands: m.Bands, ResidentB: m.Resident,
	}
	if m.DoubleC {
		d.CBuffers = 2
	}
	if m.Rounding == "floor" {
		d.Rounding = kernel.Floor
	}
	if err := d.Validate(); err != nil {
		return nil, err
	}
	return d, m.Differs(Manifest(d))
}

// Manifest describes a design as an xclbin for it must.
func Manifest(d *design.Design) *amdxdna.Manifest {
	m := &amdxdna.Manifest{
		Version: amdxdna.ManifestVersion, Device: d.Dev.Name, Types: d.Types.String(), Tile: amdxdna.Dims{M: d.Tile.M, K: d.Tile.K, N: d.Tile.N}, KMT: d.KMT,
		BLayout: "col", DoubleC: d.CBuffers == 2, Bands: d.Bands, Resident: d.ResidentB, Rounding: "even",
	}
	if d.BLayout == design.RowMajor {
		m.BLayout = "row"
	}
	if d.Rounding == kernel.Floor {
		m.Rounding = "floor"
	}
	if r, err := d.Record(); err == nil {
		m.RTP, m.Barrier = int(r.RTP), int(r.Barrier)
	}
	return m
}

// Configure implements [Executor]: the image of the xclbin is the configuration, if it is this design's.
func (h *Hardware) Configure(_ context.Context, d *design.Design) error {
	if err := h.manifest.Differs(Manifest(d)); err != nil {
		return err
	}
	if h.session != nil {
		return nil // after a failure it configures the array anew by itself
	}
	s, err := amdxdna.NewSession(h.dev, h.xclbin, h.manifest.Kernel, amdxdna.SessionOptions{})
	h.session = s
	return err
}

// Dispatch implements [Executor]. Operands are copied into buffers that host and array share.
func (h *Hardware) Dispatch(ctx context.Context, words []uint32, bufs [][]byte) (Dispatched, error) {
	for len(h.bufs) < len(bufs) {
		h.bufs = append(h.bufs, nil)
	}
	for i, b := range bufs {
		size := max(len(b), 1)
		if h.bufs[i] == nil || len(h.bufs[i].Data) < size {
			if err := h.bufs[i].Close(); err != nil {
				return Dispatched{}, err
			}
			var err error
			if h.bufs[i], err = h.dev.Alloc(size); err != nil {
				return Dispatched{}, err
			}
		}
		if len(b) == 0 {
			continue
		}
		// What lies between the rows of C must come back as it is, so C goes both ways.
		copy(h.bufs[i].Data, b)
		if err := h.bufs[i].ToDevice(0, len(b)); err != nil {
			return Dispatched{}, err
		}
	}
	start := time.Now()
	if err := h.session.Run(ctx, words, h.bufs[:len(bufs)]...); err != nil {
		return Dispatched{}, err
	}
	res := Dispatched{Seconds: time.Since(start).Seconds()}
	for _, i := range []int{design.ArgC, design.ArgSpill} {
		if len(bufs[i]) == 0 {
			continue
		}
		if err := h.bufs[i].FromDevice(0, len(bufs[i])); err != nil {
			return Dispatched{}, err
		}
		copy(bufs[i], h.bufs[i].Data)
	}
	return res, nil
}

// Close frees the buffers, the context and the device.
func (h *Hardware) Close() error {
	var errs []error
	for _, b := range h.bufs {
		errs = append(errs, b.Close())
	}
	h.bufs = nil
	if h.session != nil {
		errs = append(errs, h.session.Close())
	}
	return errors.Join(append(errs, h.dev.Close())...)
}

// describe changes a description of a simulated array into one of a chip.
func (h *Hardware) describe(d *backends.Description) {
	d.Simulated = false
	d.Device = h.dev.Info().Describe()
}
