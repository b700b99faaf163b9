#include "textflag.h"

// func starterCode()
//
// The rows are at the address starterData. BX holds that address, R12 the row.
TEXT ·starterCode(SB), NOSPLIT|NOFRAME, $0
	MOVL $0x20000000, BX
	LEAQ 32(BX), R12

row:
	MOVL 0(R12), AX
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), R10
	MOVQ 40(R12), R8
	MOVQ 48(R12), R9
	SYSCALL
	MOVQ 56(R12), R13
	MOVL AX, 0(R13)
	CMPQ AX, $-4095
	JCS  next
	CMPL 4(R12), $0
	JNE  next
	MOVQ R12, 8(BX)
	MOVQ AX, 16(BX)
	MOVQ 0(BX), R12
	JMP  row

next:
	ADDQ $64, R12
	JMP  row

// func starterAddress() *[codeSize]byte
TEXT ·starterAddress(SB), NOSPLIT, $0-8
	LEAQ ·starterCode(SB), AX
	MOVQ AX, ret+0(FP)
	RET
