package amdxdna

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestLayout compares sizes and offsets with what a C compiler makes of include/uapi/drm/amdxdna_accel.h (amd/xdna-driver, commit 856409c)
// and of the DRM core's headers.
func TestLayout(t *testing.T) {
	var (
		cc CreateContext
		cu ConfigContext
		cb CreateBO
		bi GetBOInfo
		sb SyncBO
		ex Exec
		gi GetInfo
		tw TimelineWait
		gc GEMClose
		dc DestroyContext
		q  QoSInfo
		cf CUConfig
		md Metadata
		tm TileMetadata
		cl Clocks
		fw Firmware
	)
	type field struct {
		name string
		got  uintptr
		want uintptr
	}
	for _, c := range []struct {
		name   string
		v      any
		size   int
		req    uint32
		nr     int
		fields []field
	}{
		{"CREATE_HWCTX", cc, 56, IoctlCreateContext, 0x40, []field{
			{"ext", unsafe.Offsetof(cc.Ext), 0}, {"ext_flags", unsafe.Offsetof(cc.ExtFlags), 8}, {"qos_p", unsafe.Offsetof(cc.QoS), 16},
			{"umq_bo", unsafe.Offsetof(cc.UMQBO), 24}, {"log_buf_bo", unsafe.Offsetof(cc.LogBufBO), 28}, {"max_opc", unsafe.Offsetof(cc.MaxOPC), 32},
			{"num_tiles", unsafe.Offsetof(cc.NumTiles), 36}, {"mem_size", unsafe.Offsetof(cc.MemSize), 40}, {"umq_doorbell", unsafe.Offsetof(cc.UMQDoorbell), 44},
			{"handle", unsafe.Offsetof(cc.Handle), 48}, {"syncobj_handle", unsafe.Offsetof(cc.SyncobjHandle), 52}}},
		{"DESTROY_HWCTX", dc, 8, IoctlDestroyContext, 0x41, []field{{"handle", unsafe.Offsetof(dc.Handle), 0}, {"pad", unsafe.Offsetof(dc.Pad), 4}}},
		{"CONFIG_HWCTX", cu, 24, IoctlConfigContext, 0x42, []field{
			{"handle", unsafe.Offsetof(cu.Handle), 0}, {"param_type", unsafe.Offsetof(cu.ParamType), 4}, {"param_val", unsafe.Offsetof(cu.ParamVal), 8},
			{"param_val_size", unsafe.Offsetof(cu.ParamValSize), 16}, {"pad", unsafe.Offsetof(cu.Pad), 20}}},
		{"CREATE_BO", cb, 32, IoctlCreateBO, 0x43, []field{
			{"flags", unsafe.Offsetof(cb.Flags), 0}, {"vaddr", unsafe.Offsetof(cb.VAddr), 8}, {"size", unsafe.Offsetof(cb.Size), 16},
			{"type", unsafe.Offsetof(cb.Type), 24}, {"handle", unsafe.Offsetof(cb.Handle), 28}}},
		{"GET_BO_INFO", bi, 48, IoctlGetBOInfo, 0x44, []field{
			{"ext", unsafe.Offsetof(bi.Ext), 0}, {"ext_flags", unsafe.Offsetof(bi.ExtFlags), 8}, {"handle", unsafe.Offsetof(bi.Handle), 16},
			{"pad", unsafe.Offsetof(bi.Pad), 20}, {"map_offset", unsafe.Offsetof(bi.MapOffset), 24}, {"vaddr", unsafe.Offsetof(bi.VAddr), 32},
			{"xdna_addr", unsafe.Offsetof(bi.XDNAAddr), 40}}},
		{"SYNC_BO", sb, 24, IoctlSyncBO, 0x45, []field{
			{"handle", unsafe.Offsetof(sb.Handle), 0}, {"direction", unsafe.Offsetof(sb.Direction), 4}, {"offset", unsafe.Offsetof(sb.Offset), 8},
			{"size", unsafe.Offsetof(sb.Size), 16}}},
		{"EXEC_CMD", ex, 56, IoctlExec, 0x46, []field{
			{"ext", unsafe.Offsetof(ex.Ext), 0}, {"ext_flags", unsafe.Offsetof(ex.ExtFlags), 8}, {"hwctx", unsafe.Offsetof(ex.Context), 16},
			{"type", unsafe.Offsetof(ex.Type), 20}, {"cmd_handles", unsafe.Offsetof(ex.CmdHandles), 24}, {"args", unsafe.Offsetof(ex.Args), 32},
			{"cmd_count", unsafe.Offsetof(ex.CmdCount), 40}, {"arg_count", unsafe.Offsetof(ex.ArgCount), 44}, {"seq", unsafe.Offsetof(ex.Seq), 48}}},
		{"GET_INFO", gi, 16, IoctlGetInfo, 0x47, []field{
			{"param", unsafe.Offsetof(gi.Param), 0}, {"buffer_size", unsafe.Offsetof(gi.BufferSize), 4}, {"buffer", unsafe.Offsetof(gi.Buffer), 8}}},
		{"SET_STATE", gi, 16, IoctlSetState, 0x48, nil},
		{"TIMELINE_WAIT", tw, 40, IoctlTimelineWait, 0xCA, []field{
			{"handles", unsafe.Offsetof(tw.Handles), 0}, {"points", unsafe.Offsetof(tw.Points), 8}, {"timeout_nsec", unsafe.Offsetof(tw.TimeoutNsec), 16},
			{"count", unsafe.Offsetof(tw.Count), 24}, {"flags", unsafe.Offsetof(tw.Flags), 28}, {"first", unsafe.Offsetof(tw.FirstSignaled), 32},
			{"pad", unsafe.Offsetof(tw.Pad), 36}}},
		{"GEM_CLOSE", gc, 8, IoctlGEMClose, 0x09, []field{{"handle", unsafe.Offsetof(gc.Handle), 0}, {"pad", unsafe.Offsetof(gc.Pad), 4}}},
		{"qos_info", q, 32, 0, 0, []field{ // 24 in the kernel, 32 out of tree
			{"gops", unsafe.Offsetof(q.GOPS), 0}, {"fps", unsafe.Offsetof(q.FPS), 4}, {"dma_bandwidth", unsafe.Offsetof(q.DMABandwidth), 8},
			{"latency", unsafe.Offsetof(q.Latency), 12}, {"frame_exec_time", unsafe.Offsetof(q.FrameExecTime), 16}, {"priority", unsafe.Offsetof(q.Priority), 20},
			{"user_start_col", unsafe.Offsetof(q.UserStartCol), 24}, {"reserved", unsafe.Offsetof(q.Reserved), 28}}},
		{"config_cu", cf, 16, 0, 0, []field{
			{"num_cus", unsafe.Offsetof(cf.NumCUs), 0}, {"pad", unsafe.Offsetof(cf.Pad), 2}, {"cu_bo", unsafe.Offsetof(cf.CUBO), 8},
			{"cu_func", unsafe.Offsetof(cf.CUFunc), 12}, {"cu_pad", unsafe.Offsetof(cf.CUPad), 13}}},
		{"aie_metadata", md, 64, 0, 0, []field{
			{"col_size", unsafe.Offsetof(md.ColSize), 0}, {"cols", unsafe.Offsetof(md.Cols), 4}, {"rows", unsafe.Offsetof(md.Rows), 6},
			{"version", unsafe.Offsetof(md.Major), 8}, {"core", unsafe.Offsetof(md.Core), 16}, {"mem", unsafe.Offsetof(md.Mem), 32}, {"shim", unsafe.Offsetof(md.Shim), 48}}},
		{"tile_metadata", tm, 16, 0, 0, []field{{"row_start", unsafe.Offsetof(tm.RowStart), 2}, {"dma", unsafe.Offsetof(tm.DMAChannels), 4}, {"locks", unsafe.Offsetof(tm.Locks), 6}}},
		{"clocks", cl, 48, 0, 0, []field{{"h", unsafe.Offsetof(cl.H), 24}, {"mhz", unsafe.Offsetof(cl.MPNPU.MHz), 16}}},
		{"firmware", fw, 16, 0, 0, nil},
	} {
		require.Equal(t, c.size, binary.Size(c.v), c.name)
		for _, f := range c.fields {
			require.Equal(t, f.want, f.got, "%s.%s", c.name, f.name)
		}
		switch {
		case c.req == IoctlGEMClose: // write only
			require.Equal(t, uint32(1<<30|c.size<<16|'d'<<8|c.nr), c.req)
		case c.req != 0:
			require.Equal(t, iowr(c.nr, c.size), c.req, c.name)
		}
		if c.req != 0 {
			require.NotContains(t, IoctlName(c.req), "ioctl")
		}
	}
	require.Equal(t, unsafe.Offsetof(cc.QoS), uintptr(OffQoS))
	require.Equal(t, unsafe.Offsetof(cu.ParamVal), uintptr(OffParamVal))
	require.Equal(t, unsafe.Offsetof(ex.Args), uintptr(OffExecArgs))
	require.Equal(t, unsafe.Offsetof(gi.Buffer), uintptr(OffBuffer))
	require.Equal(t, unsafe.Offsetof(tw.Handles), uintptr(OffHandles))
	require.Equal(t, unsafe.Offsetof(tw.Points), uintptr(OffPoints))
	// encoding/binary packs without padding, so this only holds if no structure has hidden padding.
	require.EqualValues(t, unsafe.Sizeof(cc), binary.Size(cc))
	require.EqualValues(t, unsafe.Sizeof(ex), binary.Size(ex))
	require.EqualValues(t, unsafe.Sizeof(md), binary.Size(md))
	require.EqualValues(t, unsafe.Sizeof(cf), binary.Size(cf))
}

func TestMarshal(t *testing.T) {
	in := Exec{Context: 3, CmdHandles: 0x1122334455667788, ArgCount: 4, Seq: 9}
	b := Marshal(&in)
	require.Equal(t, []byte{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}, b[24:32])
	var out Exec
	require.NoError(t, Unmarshal(b, &out))
	require.Equal(t, in, out)
	require.Error(t, Unmarshal(b[:8], &out))
}

// TestPacketGolden: one product's command, word by word as ert.h lays it out.
func TestPacketGolden(t *testing.T) {
	buf := make([]byte, PacketBytes)
	p := Packet{Stream: 0x1_0408_0000, Words: 0x3A7, Buffers: []uint64{0x80_0000_0000, 0x80_0100_0000, 0x80_0200_1000}}
	require.NoError(t, p.Encode(buf))
	want := []uint32{
		1 | 12<<12, // state new, 12 words follow, opcode 0 (START_CU), type 0
		1,          // compute unit 0
		3, 0,       // kernel opcode
		0x04080000, 1, // instruction buffer
		0x3A7,   // its words
		0, 0x80, // A
		0x01000000, 0x80, // B
		0x02001000, 0x80, // C
	}
	for i, w := range want {
		require.Equal(t, w, binary.LittleEndian.Uint32(buf[4*i:]), "word %d", i)
	}
	require.Equal(t, make([]byte, PacketBytes-4*len(want)), buf[4*len(want):])
	got, state, err := DecodePacket(buf)
	require.NoError(t, err)
	require.Equal(t, StateNew, state)
	require.Equal(t, p, got)

	require.Error(t, Packet{Buffers: make([]uint64, MaxBuffers+1)}.Encode(buf))
	require.Error(t, Packet{CU: 32}.Encode(buf))
	require.Error(t, p.Encode(buf[:20]))
	for i, bad := range [][]byte{nil, {1, 2}, append([]byte{1, 0, 0, 9 << 4}, buf[4:]...), append([]byte{1, 0xF0, 0x7F, 0}, buf[4:]...)} {
		_, _, err := DecodePacket(bad)
		require.Error(t, err, i)
	}
}
