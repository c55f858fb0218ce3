// Package message holds the vocabulary of PocketMQ and the encodings of it:
// what a producer sends (Message), what a consumer receives (Ext), where it
// lies (Queue), and the bytes in between.
//
//	Message --AppendProperties--> properties text --+
//	        --Codec.Compress----> body -------------+--> Record --AppendRecord--> stored bytes
//	                                                                                  |
//	Ext <--Codec.DecodeExt-------------------------------- ParseView (View) <---------+
//
// All layouts are those of Apache RocketMQ, byte for byte: the record of the
// commit log in its two versions, the body of a batch, the properties text,
// unique keys and offset message ids, tag hashes, sysflag bits, and the three
// kinds of compressed body.
//
// The package is a leaf: it imports nothing of this module, does no input or
// output, starts no goroutine, and never looks at the clock. Whoever needs
// the time in a result passes it in. Everything that comes from outside is
// checked before memory is taken for it; no input makes a decoder panic.
//
// Functions named Append add to a slice and return it, as in package strconv.
// What they do not say otherwise about memory is this: arguments are read and
// never kept.
//
// What this package does not do: it does not decide whether a body is worth
// compressing, whether a topic exists, or where a message goes.
package message
