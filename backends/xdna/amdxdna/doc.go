// Package amdxdna talks to Ryzen AI NPUs through the Linux driver amdxdna, in pure Go: buffer objects, hardware contexts, command packets
// and completion, and the files that bring a configuration to the chip (xclbin, and a manifest that ties one to a design).
//
// It decides how a run-time stream reaches the array: a [Session] holds one hardware context with one configuration; [Session.Run] copies the
// stream into an instruction buffer, writes a command packet that names it and the operands' buffers, submits it and waits.
// The next size needs another stream and other arguments, nothing else.
//
// What has been run: everything here against the fake device of package fake, which checks every structure and executes the
// instruction buffer on Tessera's array emulator. What has not: a chip. The system calls are behind [Sys]; only Linux has them.
//
// Sources: include/uapi/drm/amdxdna_accel.h of Linux (GPL-2.0 with syscall note, so its numbers may be used) and of amd/xdna-driver commit 856409c;
// ert.h and xclbin.h of Xilinx/XRT commit 963c58e.
package amdxdna
