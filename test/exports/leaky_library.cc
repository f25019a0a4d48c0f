// SPDX-License-Identifier: Apache-2.0
// A library that exports more than it should, to see the exports test fail.
extern "C" {
__attribute__((visibility("default"))) int ronde_intended();
__attribute__((visibility("default"))) int leaked_symbol();

int ronde_intended() { return 1; }
int leaked_symbol() { return 2; }
}
