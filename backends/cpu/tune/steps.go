package tune

import (
	"slices"

	"github.com/tessera-go/tessera/backends/cpu/conv"
	"github.com/tessera-go/tessera/internal/knob"
)

// Steps returns what is measured, in the order in which it is decided: first how a product is blocked, then what is packed, then
// what only some shapes or several workers meet. The cases of a step lie around the point where its threshold decides.
func Steps(workers int) []Step {
	f32 := func(m, n, k int) Case { return Case{Kind: F32, M: m, N: n, K: k} }
	plain := func(m, n, k int) Case { return Case{Kind: F32, M: m, N: n, K: k, Plain: true} }
	colA := func(m, n, k int) Case { return Case{Kind: F32, M: m, N: n, K: k, ColA: true} }
	bf16 := func(m, n, k int) Case { return Case{Kind: BF16, M: m, N: n, K: k} }
	s8 := func(m, n, k int) Case { return Case{Kind: S8, M: m, N: n, K: k} }
	q4 := func(m, n, k int) Case { return Case{Kind: Q4, M: m, N: n, K: k} }
	all := func(c Case) Case { c.All = true; return c }
	batch := func(n, size int) Case { return Case{Kind: F32, M: size, N: size, K: size, Batch: n, All: true} }
	image := func(size, in, out, kernel int) Case {
		pad := kernel / 2
		return Case{Kind: Conv, Image: conv.Spec{N: 1, H: size, W: size, C: in, M: out, KH: kernel, KW: kernel, SH: 1, SW: 1, DH: 1, DW: 1,
			Top: pad, Left: pad, OH: size, OW: size, Groups: 1}}
	}
	depthwise := func(size, channels int) Case {
		c := image(size, channels, channels, 3)
		c.Image.Groups = channels
		return c
	}

	// Pixels that become blocks of 2 x 2 pixels with few channels.
	enlarge := func(size, in, out int) Case {
		c := image(size, in, out, 2)
		c.Image.Top, c.Image.Left, c.Image.SH, c.Image.SW, c.Image.OH, c.Image.OW, c.Image.Transposed = 0, 0, 2, 2, 2*size, 2*size, true
		return c
	}

	blocks := []Case{f32(512, 512, 512), f32(256, 1024, 1536)}
	steps := []Step{
		{"kc-max", []int{256, 384, 512, 768, 1024}, blocks},
		{"kc-min", []int{64, 128, 256}, []Case{f32(512, 512, 80), f32(512, 512, 160), f32(512, 512, 240)}},
		{"strip-percent", []int{25, 50, 75, 90}, blocks},
		{"b-percent", []int{20, 30, 40, 55}, blocks},
		{"c-percent", []int{15, 30, 45}, blocks},
		{"panel-percent", []int{3, 6, 13, 20}, append([]Case{f32(512, 256, 2048)}, blocks...)},
		{"a-percent", []int{20, 30, 40, 50}, append([]Case{f32(512, 256, 2048)}, blocks...)},
		{"panel-bytes", []int{1 << 20, 2 << 20, 4 << 20, 8 << 20}, []Case{f32(600, 1536, 1024)}},
		{"panel-strips", []int{2, 4, 8, 16, 32}, []Case{f32(18, 768, 512), f32(36, 768, 512), f32(72, 768, 512), f32(144, 768, 512)}},
		{"conflict-rows", []int{0, 4, 5, 6, 8, 12}, []Case{f32(240, 192, 1024), f32(120, 256, 2048)}},
		{"pair-ways", []int{0, 1, 64}, []Case{f32(8, 768, 512), f32(16, 768, 512), f32(240, 192, 1024)}},
		{"pair-rows", []int{0, 15, 29, 60, 1 << 30}, []Case{f32(24, 768, 512), f32(48, 768, 512), f32(250, 512, 500)}},
		{"stream-bytes", []int{0, 1 << 20, 4 << 20, 1 << 30}, []Case{f32(2, 2048, 2048), f32(4, 1024, 1024), s8(3, 2048, 2048)}},
		{"b-pack-rows", []int{16, 32, 48, 64, 96}, []Case{plain(24, 512, 512), plain(40, 512, 512), plain(56, 512, 512), plain(80, 512, 512)}},
		{"b-local-rows", []int{0, 256, 1024, 4096}, []Case{plain(200, 512, 512), plain(600, 512, 512), plain(1500, 512, 256)}},
		{"pack-together", []int{8, 16, 32, 64}, []Case{plain(700, 1024, 512), plain(700, 2048, 256)}},
		{"kc-in-place", []int{8, 16, 32, 64, 128}, []Case{plain(8, 1024, 1536), plain(4, 2048, 1024)}},
		{"a-pack-reuse", []int{1, 4, 8, 16, 64}, []Case{f32(256, 64, 512), f32(256, 192, 512), f32(256, 384, 512), f32(256, 1024, 512)}},
		{"a-pack-stride", []int{1024, 2048, 4096, 16384}, []Case{colA(300, 768, 384), colA(768, 512, 384), colA(2048, 512, 384)}},
		{"a-pack-span", []int{256 << 10, 1 << 20, 4 << 20, 16 << 20}, []Case{colA(768, 512, 512), colA(2048, 512, 512), colA(6000, 256, 512)}},
		{"a-pack-panels", []int{4, 16, 64}, []Case{colA(4096, 96, 512), colA(4096, 320, 512), colA(4096, 1024, 256)}},
		{"low-rows", []int{0, 4, 8, 16, 32}, []Case{bf16(3, 1024, 1024), bf16(6, 1024, 1024), bf16(12, 1024, 1024), bf16(24, 1024, 1024)}},
		{"inner-rows", []int{16, 32, 48, 64, 96}, []Case{s8(24, 512, 512), s8(40, 512, 512), s8(56, 512, 512), s8(80, 512, 512)}},
		{"inner-depth", []int{16, 32, 48, 64, 96}, []Case{s8(256, 256, 24), s8(256, 256, 40), s8(256, 256, 56), s8(256, 256, 80)}},
		{"inner-steps", []int{64, 96, 128, 192, 256}, []Case{s8(256, 512, 1024), s8(384, 384, 1536)}},
		{"tile-rows", []int{0, 2, 4, 8, 16}, []Case{s8(1, 1024, 1024), s8(3, 1024, 1024), s8(6, 1024, 1024), s8(12, 1024, 1024)}},
		{"q-few-rows", []int{0, 4, 8, 16, 32}, []Case{q4(4, 1024, 1024), q4(8, 1024, 1024), q4(16, 1024, 1024), q4(32, 1024, 1024)}},
		{"q-tiles-from", []int{1, 8, 16, 32}, []Case{q4(4, 1024, 1024), q4(8, 1024, 1024), q4(16, 1024, 1024), q4(28, 1024, 1024)}},
		{"q-chunk-dot", []int{256, 512, 1024, 2048}, []Case{q4(6, 1024, 2048), q4(32, 1024, 2048)}},
		{"q-chunk-tiles", []int{256, 512, 1024, 2048}, []Case{q4(6, 1024, 2048), q4(64, 1024, 2048)}},
	}
	steps = append(steps,
		Step{"b-in-place-bytes", []int{0, 12 << 10, 24 << 10, 40 << 10}, []Case{plain(128, 64, 40), plain(256, 64, 80), plain(256, 96, 96)}},
		Step{"conv-scratch-floats", []int{32 << 10, 96 << 10, 192 << 10}, []Case{image(56, 64, 64, 5), image(112, 16, 64, 5)}},
		Step{"conv-panel-floats", []int{80 << 10, 160 << 10, 320 << 10}, []Case{image(28, 128, 256, 5), image(14, 512, 512, 1)}},
	)
	if workers > 1 {
		steps = append(steps,
			Step{"macs-per-worker", []int{100_000, 200_000, 400_000, 800_000, 1_600_000},
				[]Case{all(f32(32, 128, 64)), all(f32(48, 192, 96)), all(f32(64, 256, 128))}},
			Step{"batch-jobs", []int{1, 2, 4, 16}, []Case{batch(workers, 96), batch(3*workers, 96), batch(3*workers, 256)}},
			Step{"batch-macs", []int{100_000, 800_000, 3_200_000, 25_600_000}, []Case{batch(workers, 64), batch(workers, 128), batch(workers, 256)}},
			Step{"conv-jobs-per-worker", []int{2, 4, 8}, []Case{all(image(56, 64, 64, 5)), all(image(28, 128, 128, 1))}},
			Step{"conv-job-macs", []int{1 << 18, 1 << 20, 1 << 22}, []Case{all(image(14, 64, 64, 5)), all(image(28, 64, 64, 1))}},
			Step{"conv-depthwise-macs", []int{50_000, 200_000, 800_000}, []Case{all(depthwise(28, 96)), all(depthwise(56, 64))}},
			Step{"conv-post-floats", []int{2 << 10, 8 << 10, 32 << 10}, []Case{all(enlarge(64, 32, 3)), all(enlarge(128, 16, 1))}},
			Step{"q-quant-job", []int{4 << 10, 16 << 10, 64 << 10}, []Case{all(q4(32, 512, 1024)), all(q4(128, 256, 1024))}},
			Step{"jobs-per-worker", []int{2, 4, 8}, []Case{all(f32(300, 300, 300)), all(f32(777, 555, 333))}},
		)
	}
	for i := range steps {
		steps[i].Values = withDefault(steps[i].Knob, steps[i].Values)
	}
	return steps
}

// Unmeasured returns why each of the other thresholds is not measured, by name: each threshold of the backend is in a step or here.
func Unmeasured() map[string]string {
	const (
		process = "the backend reads it once in a process, and what is best depends on the graph around the product"
		memory  = "it bounds memory, not time"
		latency = "it bounds how long a product goes on after its context ended, not its time"
	)
	return map[string]string{
		"small-product":     process,
		"small-attention":   process,
		"pack-limit":        memory,
		"call-bytes":        latency,
		"q-tile-rows":       latency,
		"spin-microseconds": "what is best depends on the time that a program spends between products, and on what else wants the processors",
	}
}

// withDefault returns the values, and among them the default of the threshold, which the engine may move.
func withDefault(name string, values []int) []int {
	all := knob.All()
	i := slices.IndexFunc(all, func(d *knob.Def) bool { return d.Name == name })
	if i < 0 || slices.Contains(values, all[i].Default) {
		return values
	}
	values = append(values, all[i].Default)
	slices.Sort(values)
	return values
}

// Select returns the steps for some thresholds, in their order; unknown names are returned too.
func Select(steps []Step, names []string) (chosen []Step, unknown []string) {
	for _, n := range names {
		if !slices.ContainsFunc(steps, func(s Step) bool { return s.Knob == n }) {
			unknown = append(unknown, n)
		}
	}
	for _, s := range steps {
		if slices.Contains(names, s.Knob) {
			chosen = append(chosen, s)
		}
	}
	return chosen, unknown
}
