package message

// Bits of a record's sysflag. Java: MessageSysFlag, CompressionType.
const (
	FlagCompressed          int32 = 0x1 // the body is compressed
	FlagMultiTags           int32 = 0x2 // set by a broker whose topic filters by several tags
	FlagTransactionPrepared int32 = 0x4 // a half message
	FlagTransactionCommit   int32 = 0x8
	FlagTransactionRollback int32 = 0xC
	FlagTransactionMask     int32 = 0xC  // selects the three above; 0 = no transaction
	FlagBornHostV6          int32 = 0x10 // BORNHOST takes 20 bytes; set at store time
	FlagStoreHostV6         int32 = 0x20 // STOREHOST takes 20 bytes; set at store time
	FlagNeedUnwrap          int32 = 0x40 // an inner batch that the client splits
	FlagInnerBatch          int32 = 0x80 // the body is a batch

	// FlagCompressionMask selects the kind of compression: 0 and 0x300 are
	// zlib, 0x100 is LZ4, 0x200 is Zstandard. 0 is what old senders leave.
	FlagCompressionMask int32 = 0x700
)
