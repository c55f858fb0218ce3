// Package pipenet is a network inside one process whose connections are
// net.Pipe: bytes cross it as they cross TCP, but in a testing/synctest bubble
// everything on it is durably blocked when it waits, so that what runs over it
// runs in virtual time.
package pipenet
