// Package statefile keeps one small piece of state in one file so that it
// always parses, whatever moment the process is killed at.
//
// Every save writes a new file beside the old one and renames it into place;
// the version before it stays as a backup. The content is followed by one line
// with its checksum:
//
//	{"offsetTable":{"orders@billing":{"0":12}}}
//	#crc32c 1a32c115
//
// so that a torn, zero-filled or mixed file is recognised and the backup is
// used instead. The content itself stays readable by people.
//
// Files of one File:
//
//	offsets.json          the last saved version
//	offsets.json.bak      the version before it
//	offsets.json.tmp      being written; ignored and replaced after a crash
//	offsets.json.bak.tmp  the same, for the backup
//
// It does no locking between processes and knows nothing of what it stores.
package statefile
