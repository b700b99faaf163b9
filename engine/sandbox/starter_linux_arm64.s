#include "textflag.h"

// func starterCode()
//
// The rows are at the address starterData. R19 holds that address, R20 the row.
TEXT ·starterCode(SB), NOSPLIT|NOFRAME, $0
	MOVD $0x20000000, R19
	ADD  $32, R19, R20

row:
	MOVWU 0(R20), R8
	MOVD  8(R20), R0
	MOVD  16(R20), R1
	MOVD  24(R20), R2
	MOVD  32(R20), R3
	MOVD  40(R20), R4
	MOVD  48(R20), R5
	SVC
	MOVD  56(R20), R9
	MOVW  R0, 0(R9)
	CMN   $4095, R0
	BLO   next
	MOVWU 4(R20), R9
	CBNZ  R9, next
	MOVD  R20, 8(R19)
	MOVD  R0, 16(R19)
	MOVD  0(R19), R20
	B     row

next:
	ADD $64, R20
	B   row

// func starterAddress() *[codeSize]byte
TEXT ·starterAddress(SB), NOSPLIT, $0-8
	MOVD $·starterCode(SB), R0
	MOVD R0, ret+0(FP)
	RET
