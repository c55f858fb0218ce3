// Package kvconfig holds the KV configuration of a name server: values under
// keys in namespaces, of which ORDER_TOPIC_CONFIG, the ordered topics, is the
// one that anybody uses. Java: KVConfigManager.
//
// A change is in the file before anybody sees it:
//
//	{
//	 "configTable": {
//	  "ORDER_TOPIC_CONFIG": {
//	   "orders": "broker-a:4;broker-b:4"
//	  }
//	 }
//	}
//	#crc32c 1a32c115
//
// A table without a file forgets everything. What strangers can make it hold is
// bounded, see MaxBytes.
package kvconfig
