// Package interop holds tests only: the official RocketMQ Go client, unchanged,
// against a PocketMQ cluster over loopback. Package rmqtest beside it is for
// other modules: it runs official clients in their tests.
//
// Every scenario prints a line when it has succeeded:
//
//	interop: producer/batch: 300 sent, 300 consumed, lost 0
//
// Their names follow the folders of the official repository's examples; see
// README.md for which example is shown by which scenario.
package interop
