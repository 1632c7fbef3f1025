// Package device is the hardware of the two NPU generations as data: tiles, memories, DMA channels, buffer descriptors, locks,
// stream-switch ports, register addresses and the multiply units. It decides nothing; txn, design and the array
// emulator read it, and a third device is a third table.
//
// Sources: AMD AM020 (AIE-ML), Xilinx/aie-rt (register offsets and field widths), Xilinx/mlir-aie (AIETargetModel, TxnEncoding),
// arXiv 2512.13282 (clocks, array shapes, memory sizes). Field widths were checked against published control code.
package device
