package gemm

// planKey is all that decides how a product is computed, but for where its operands lie.
type planKey struct {
	engine        engineKey
	kn            *knobs
	m, n, k       int
	ars, brs, bcs int // strides; those along rows of A and C are 1
	crs           int
	c             Type
	acc, packed   bool
	threads       int
}

// plan is how the last product was laid out. One of the same key, if the product was whole, needs no decision: they are small, so that deciding counts.
type plan struct {
	key   planKey // zero is none
	whole bool
	size  int // bytes of the workspace
	row   int // where in it the sums of the rows of A go
}

// keyOf returns the key of a call, if it is one whose layout may be kept.
func keyOf(x *call, opt *Options, isa ISA, kn *knobs, acc bool) (key planKey, ok bool) {
	if x.pa != nil || x.scaled || x.a.ColStride != 1 || x.c.ColStride != 1 || opt.Epilogue != nil && opt.Epilogue.After.typ != 0 || x.a.Cols == 0 {
		return key, false
	}
	var f format
	if x.pb != nil {
		f = x.pb.f
	}
	return planKey{
		engine: engineKey{isa, x.a.typ, x.b.typ, f, opt.BF16}, kn: kn, m: x.c.Rows, n: x.c.Cols, k: x.a.Cols, ars: x.a.RowStride,
		brs: x.b.RowStride, bcs: x.b.ColStride, crs: x.c.RowStride, c: x.c.typ, acc: acc, packed: x.pb != nil, threads: opt.threads(),
	}, true
}
