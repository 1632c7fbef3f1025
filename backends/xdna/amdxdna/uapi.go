package amdxdna

import (
	"encoding/binary"
	"fmt"
)

// Numbers of the ioctls (direction, size, type 'd', number), as the kernel's macros compute them.
const (
	IoctlCreateContext  = 0xC0386440
	IoctlDestroyContext = 0xC0086441
	IoctlConfigContext  = 0xC0186442
	IoctlCreateBO       = 0xC0206443
	IoctlGetBOInfo      = 0xC0306444
	IoctlSyncBO         = 0xC0186445
	IoctlExec           = 0xC0386446
	IoctlGetInfo        = 0xC0106447
	IoctlSetState       = 0xC0106448
	IoctlTimelineWait   = 0xC02864CA // DRM core: DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, the 40-byte form
	IoctlGEMClose       = 0x40086409 // DRM core: DRM_IOCTL_GEM_CLOSE
)

// iowr computes the number of a read-write ioctl of type 'd'.
func iowr(nr, size int) uint32 { return 3<<30 | uint32(size)<<16 | 'd'<<8 | uint32(nr) }

// IoctlName names an ioctl in messages.
func IoctlName(req uint32) string {
	switch req {
	case IoctlCreateContext:
		return "CREATE_HWCTX"
	case IoctlDestroyContext:
		return "DESTROY_HWCTX"
	case IoctlConfigContext:
		return "CONFIG_HWCTX"
	case IoctlCreateBO:
		return "CREATE_BO"
	case IoctlGetBOInfo:
		return "GET_BO_INFO"
	case IoctlSyncBO:
		return "SYNC_BO"
	case IoctlExec:
		return "EXEC_CMD"
	case IoctlGetInfo:
		return "GET_INFO"
	case IoctlSetState:
		return "SET_STATE"
	case IoctlTimelineWait:
		return "SYNCOBJ_TIMELINE_WAIT"
	case IoctlGEMClose:
		return "GEM_CLOSE"
	}
	return fmt.Sprintf("ioctl %#x", req)
}

// BOType is the type of a buffer object.
type BOType uint32

// The types: host memory that the array reaches, the device heap, a piece of the heap, a command packet.
const (
	BOShare   BOType = 1
	BODevHeap BOType = 2
	BODev     BOType = 3
	BOCmd     BOType = 4
)

// Directions of SYNC_BO.
const (
	SyncToDevice   = 0
	SyncFromDevice = 1
)

// Parameters of GET_INFO.
const (
	InfoMetadata = 1
	InfoClocks   = 3
	InfoFirmware = 8
)

// InvalidAddr (AMDXDNA_INVALID_ADDR) stands for an address that the driver does not know: of shared buffers where no I/O addresses are assigned, because
// the array sees them where the process has mapped them.
const InvalidAddr = 1<<64 - 1

// configCU is the param_type of CONFIG_HWCTX that names the context's compute units.
const configCU = 0

// waitForSubmit makes a timeline wait accept a point whose work has not been submitted yet.
const waitForSubmit = 1 << 1

// Fields that hold user addresses are listed with their offsets; see [Pointer]. All structures are little-endian without hidden padding.

// CreateContext is struct amdxdna_drm_create_hwctx.
type CreateContext struct {
	Ext, ExtFlags   uint64
	QoS             uint64 // pointer to [QoSInfo]
	UMQBO, LogBufBO uint32
	MaxOPC          uint32
	NumTiles        uint32
	MemSize         uint32
	UMQDoorbell     uint32
	Handle          uint32 // returned
	SyncobjHandle   uint32 // returned
}

// QoSInfo is struct amdxdna_qos_info, padded with zeros to the 32 bytes of the out-of-tree driver's, which has a start column behind.
type QoSInfo struct {
	GOPS, FPS, DMABandwidth, Latency, FrameExecTime, Priority uint32
	UserStartCol, Reserved                                    uint32
}

// PriorityNormal is the QoS priority of ordinary work.
const PriorityNormal = 0x200

// DestroyContext is struct amdxdna_drm_destroy_hwctx.
type DestroyContext struct{ Handle, Pad uint32 }

// ConfigContext is struct amdxdna_drm_config_hwctx.
type ConfigContext struct {
	Handle, ParamType uint32
	ParamVal          uint64 // pointer to [CUConfig]
	ParamValSize, Pad uint32
}

// CUConfig is struct amdxdna_hwctx_param_config_cu with one compute unit.
type CUConfig struct {
	NumCUs uint16
	Pad    [3]uint16
	CUBO   uint32
	CUFunc uint8
	CUPad  [3]uint8
}

// CreateBO is struct amdxdna_drm_create_bo.
type CreateBO struct {
	Flags, VAddr, Size uint64
	Type               uint32
	Handle             uint32 // returned
}

// GetBOInfo is struct amdxdna_drm_get_bo_info.
type GetBOInfo struct {
	Ext, ExtFlags uint64
	Handle, Pad   uint32
	MapOffset     uint64 // returned: for mmap
	VAddr         uint64 // returned
	XDNAAddr      uint64 // returned: address on the device
}

// SyncBO is struct amdxdna_drm_sync_bo.
type SyncBO struct {
	Handle, Direction uint32
	Offset, Size      uint64
}

// Exec is struct amdxdna_drm_exec_cmd.
type Exec struct {
	Ext, ExtFlags      uint64
	Context, Type      uint32
	CmdHandles         uint64 // the handle itself if there is one command
	Args               uint64 // pointer to handles of the buffers that the command uses
	CmdCount, ArgCount uint32
	Seq                uint64 // returned: the point on the context's timeline
}

// GetInfo is struct amdxdna_drm_get_info.
type GetInfo struct {
	Param, BufferSize uint32
	Buffer            uint64 // pointer
}

// TileMetadata is struct amdxdna_drm_query_aie_tile_metadata.
type TileMetadata struct {
	RowCount, RowStart, DMAChannels, Locks, EventRegs uint16
	Pad                                               [3]uint16
}

// Metadata is struct amdxdna_drm_query_aie_metadata.
type Metadata struct {
	ColSize      uint32
	Cols, Rows   uint16
	Major, Minor uint32
	Core         TileMetadata
	Mem          TileMetadata
	Shim         TileMetadata
}

// Clock is struct amdxdna_drm_query_clock.
type Clock struct {
	Name     [16]byte
	MHz, Pad uint32
}

// Clocks is struct amdxdna_drm_query_clock_metadata.
type Clocks struct{ MPNPU, H Clock }

// Firmware is struct amdxdna_drm_query_firmware_version.
type Firmware struct{ Major, Minor, Patch, Build uint32 }

// TimelineWait is struct drm_syncobj_timeline_wait without the deadline that newer kernels allow behind it.
type TimelineWait struct {
	Handles, Points uint64 // pointers
	TimeoutNsec     int64  // absolute, CLOCK_MONOTONIC
	Count, Flags    uint32
	FirstSignaled   uint32
	Pad             uint32
}

// GEMClose is struct drm_gem_close.
type GEMClose struct{ Handle, Pad uint32 }

// Offsets of the pointer fields.
const (
	OffQoS      = 16
	OffParamVal = 8
	OffExecArgs = 32
	OffBuffer   = 8
	OffHandles  = 0
	OffPoints   = 8
)

// Marshal returns the bytes of one of this file's structures.
func Marshal(v any) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic("amdxdna: " + err.Error()) // a structure of variable size: a bug here
	}
	return b
}

// Unmarshal fills one of this file's structures from bytes, which must be as many as it has.
func Unmarshal(b []byte, v any) error {
	if n := binary.Size(v); n != len(b) {
		return fmt.Errorf("%d bytes for %T, want %d", len(b), v, n)
	}
	_, err := binary.Decode(b, binary.LittleEndian, v)
	return err
}
