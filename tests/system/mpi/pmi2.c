#include <slurm/pmi2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define OK(x) do { int e_=(x); if (e_) { fprintf(stderr,"%s failed: %d\n",#x,e_); exit(3);} } while(0)
int main(int c,char**v){ int sp,size,rank,app,len,found; char job[256],key[64],val[1200],got[1200];
 OK(PMI2_Init(&sp,&size,&rank,&app)); OK(PMI2_Job_GetId(job,sizeof job));
 snprintf(key,64,"card-%d",rank); snprintf(val,1200,"a;b=%d;;end of %d",rank,rank);
 OK(PMI2_KVS_Put(key,val)); OK(PMI2_KVS_Fence());
 for(int i=0;i<size;i++){ char want[1200]; snprintf(key,64,"card-%d",i); snprintf(want,1200,"a;b=%d;;end of %d",i,i);
  OK(PMI2_KVS_Get(job,PMI2_ID_NULL,key,got,sizeof got,&len)); if(strcmp(got,want)){fprintf(stderr,"rank %d: %s got %s\n",rank,key,got);exit(4);} }
 OK(PMI2_Info_GetJobAttr("PMI_process_mapping",got,sizeof got,&found));
 if(rank==0) printf("size %d job %s mapping %s\n",size,job,got);
 if(rank==0) OK(PMI2_Info_PutNodeAttr("shm","segment 1"));
 OK(PMI2_Info_GetNodeAttr("shm",val,sizeof val,&found,1)); if(!found||strcmp(val,"segment 1")) {fprintf(stderr,"node attr %s\n",val);exit(5);}
 if(rank==size-1) OK(PMI2_Nameserv_publish("ocean",NULL,"port;1")); OK(PMI2_KVS_Fence());
 OK(PMI2_Nameserv_lookup("ocean",NULL,val,sizeof val)); if(strcmp(val,"port;1")){fprintf(stderr,"lookup %s\n",val);exit(6);}
 if(c>1&&rank==1) PMI2_Abort(1,"no more");
 OK(PMI2_KVS_Fence()); OK(PMI2_Finalize()); if(rank==0) puts("fine"); return 0;}
